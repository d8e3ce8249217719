"""Caching on against caching off: two servers, asked in turns; and the throughput when nothing can be reused."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from anaphora.bench.evidence import TOLERATED_BIAS, timing
from anaphora.bench.experiment import Bench, Conclusion, compare_texts, hit_rate, length, ms, ttft
from anaphora.bench.measurement import Log, Prompt, first_tokens_s
from anaphora.bench.session import Plan, Session
from anaphora.bench.statistics import Spread, median, ratio_interval, spread
from anaphora.bench.target import Target

SIDES = ("on", "off")
UNITS = (("cold",), ("warm", "control"), ("batch",))


@dataclass(frozen=True, slots=True, kw_only=True)
class AbExperiment:
    """In each round both servers get the same arms with the same prompts, arm by arm, in random order.

    The first server is the one with caching on. `batch` are never-seen prompts at once: the work at no hits.
    """

    tokens: int = 1000
    rounds: int = 5
    output_tokens: int = 16
    batch: int = 4
    name: str = "ab"
    arms: tuple[str, ...] = (
        "on cold",
        "on warm",
        "on control",
        "on batch",
        "off cold",
        "off warm",
        "off control",
        "off batch",
    )
    same_length: bool = True
    as_planned: bool = True

    @property
    def loop(self) -> str:
        """How requests wait for each other."""
        return f"closed, one request at a time; the arm `batch`: {self.batch} at once"

    @property
    def num_requests(self) -> int:
        """For each server a priming one, cold, warm, control and a batch a round."""
        return 2 * self.rounds * (4 + self.batch)

    @property
    def longest(self) -> int:
        """Prompt and output."""
        return self.tokens + self.output_tokens

    async def measure(self, bench: Bench) -> None:
        """Ask both servers in turns, with the same prompts."""
        servers = dict(zip(SIDES, bench.sessions, strict=True))
        for number in range(self.rounds):
            repeated = await bench.session.prompts.fresh(self.tokens)
            for side in bench.order.sample(SIDES, 2):
                plan = Plan(arm="prime", number=number, max_tokens=self.output_tokens, phase="prime")
                await servers[side].prime(repeated, plan)
            for unit in bench.order.sample(UNITS, len(UNITS)):
                groups = {arm: await self._prompts(bench, arm, repeated) for arm in unit}
                for side in bench.order.sample(SIDES, 2):
                    for arm, prompts in groups.items():
                        await self._send(servers[side], side, arm, prompts, number)

    async def _prompts(self, bench: Bench, arm: str, repeated: Prompt) -> list[Prompt]:
        if arm == "warm":
            return [repeated]
        size = self.batch if arm == "batch" else 1
        return [await bench.session.prompts.fresh(self.tokens) for _ in range(size)]

    async def _send(
        self, session: Session, side: str, arm: str, prompts: Sequence[Prompt], number: int
    ) -> None:
        is_reused = arm == "warm" and side == "on"
        plan = Plan(
            arm=f"{side} {arm}",
            number=number,
            planned=prompts[0].num_tokens if is_reused else session.prompts.head_tokens,
            max_tokens=self.output_tokens,
        )
        if arm != "batch":
            await session.send(prompts[0], plan)
            return
        found = await session.together(prompts, self.output_tokens)
        session.record_together(prompts, [plan] * len(prompts), found)
        await session.settle()

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Compare the two, warm and at no hits."""
        conclusion = Conclusion(doubts=[*_differences(targets), *_faster_without_reuse(log)])
        on, off = log.good("on warm"), log.good("off warm")
        by_clock, beside = timing(on, off, 1.0), timing(on, log.good("on control"), 1.0)
        facts = (
            f"at hit rates of {hit_rate(on)} on and {hit_rate(off)} off, "
            f"on prompts of {length(on):,} tokens, one request at a time"
        )
        conclusion.findings.append(f"the same prompt again, {facts}: on {ms(ttft(on))}, off {ms(ttft(off))}")
        if by_clock.says == beside.says == "yes" and by_clock.ratio:
            low, high = by_clock.ratio
            conclusion.claims.append(
                f"with caching on, the first token takes {low:.3f} to {high:.3f} of the time, {facts}"
            )
        else:
            conclusion.findings.append(
                f"no gain is claimed, since on is not clearly below off ({by_clock.figures}) "
                f"and below what it never saw ({beside.figures})"
            )
            conclusion.is_flagged = True
        rates = {side: _rates(log, f"{side} batch") for side in SIDES}
        both = [number for number in rates["on"] if number in rates["off"]]
        ratio = spread([[rates["on"][number] / rates["off"][number]] for number in both])
        conclusion.details = {
            "warm_on_to_off": by_clock.ratio,
            "zero_hit_tokens_per_s": {side: list(rates[side].values()) for side in SIDES},
            "zero_hit_on_to_off": None if ratio is None else asdict(ratio),
        }
        if ratio is not None:
            conclusion.claims.append(_zero_hits(self.batch, rates, ratio))
        others = {entry.number: entry for entry in off}
        conclusion.equality = compare_texts([(others[e.number], e) for e in on if e.number in others])
        return conclusion


def _differences(targets: Sequence[Target]) -> list[str]:
    """Two servers can be compared only if caching is all that differs."""
    if len(targets) < 2:
        return ["only one server answered"]
    kinds = [(target.name, target.version, target.model) for target in targets]
    if kinds[0] == kinds[1]:
        return []
    return [f"the servers differ in more than caching: {kinds[0]} and {kinds[1]}"]


def _faster_without_reuse(log: Log) -> list[str]:
    """Never-seen prompts gain nothing from a cache: where they are faster, the servers are not alike."""
    on, off = (first_tokens_s(log.good(f"{side} cold", f"{side} control")) for side in SIDES)
    ratio = ratio_interval(on, off) if on and off else None
    if ratio is None or ratio[1] >= 1 - TOLERATED_BIAS:
        return []
    return [
        (
            f"never-seen prompts take {ratio[0]:.2f} to {ratio[1]:.2f} of the time where caching is on, which no cache "
            "can do: the servers or their machines differ in more than caching"
        )
    ]


def _rates(log: Log, arm: str) -> dict[int, float]:
    """Return, by round, the tokens (of prompts and outputs) per second of a batch, from first to last byte."""
    found = {}
    for number in dict.fromkeys(entry.number for entry in log.good(arm)):
        batch = [entry for entry in log.good(arm) if entry.number == number]
        tokens = sum(entry.prompt_tokens + (entry.answer.completion_tokens or 0) for entry in batch)
        found[number] = tokens / max(entry.answer.e2e_s for entry in batch)
    return found


def _zero_hits(batch: int, rates: dict[str, dict[int, float]], ratio: Spread) -> str:
    on, off = (median(list(rates[side].values())) for side in SIDES)
    text = (
        f"at no hits, {batch} never-seen prompts at once: on {on:,.0f} tokens/s, off {off:,.0f} tokens/s; "
        f"on ÷ off round by round {ratio.median:.3f}"
    )
    return text if ratio.low is None else f"{text} [{ratio.low:.3f} to {ratio.high:.3f}]"
