"""Many identical prompts at one moment: is the prompt computed once, or once for each?"""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.bench.experiment import Bench, Conclusion, compare_texts, length, ms, sum_cached, ttft
from anaphora.bench.measurement import Answer, Log, Measurement
from anaphora.bench.session import Plan
from anaphora.bench.statistics import interleaved, median
from anaphora.bench.target import LARGEST_BLOCK, Target

UNITS = (("one",), ("identical",), ("different",))


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstExperiment:
    """Each round has one prompt alone, N identical ones at once, and N different ones at once; all never seen."""

    concurrency: int = 8
    tokens: int = 600
    rounds: int = 4
    output_tokens: int = 8
    name: str = "burst"
    arms: tuple[str, ...] = ("one", "identical", "different")
    same_length: bool = True
    as_planned: bool = False

    @property
    def loop(self) -> str:
        """How requests wait for each other."""
        return f"closed, {self.concurrency} requests at once (the arm `one`: a single one)"

    @property
    def num_requests(self) -> int:
        """Each round one, N and N."""
        return self.rounds * (1 + 2 * self.concurrency)

    @property
    def longest(self) -> int:
        """Prompt and output."""
        return self.tokens + self.output_tokens

    async def measure(self, bench: Bench) -> None:
        """Send the bursts, round by round."""
        session, prompts = bench.session, bench.session.prompts
        for number, arm in interleaved(bench.order, self.rounds, UNITS):
            size = 1 if arm == "one" else self.concurrency
            group = [await prompts.fresh(self.tokens) for _ in range(1 if arm == "identical" else size)]
            sent = group * size if arm == "identical" else group
            found = await session.together(sent, self.output_tokens)
            first = _first(found.answers)
            plans = [
                Plan(
                    arm=arm,
                    number=number,
                    planned=prompt.num_tokens
                    if arm == "identical" and place != first
                    else prompts.head_tokens,
                    max_tokens=self.output_tokens,
                )
                for place, prompt in enumerate(sent)
            ]
            session.record_together(sent, plans, found)
            await session.settle()

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Say how many prompt tokens were computed for each burst, and what the times were."""
        conclusion = Conclusion()
        for arm in ("one", "identical", "different"):
            conclusion.findings.append(f"{arm}: time to first token {ms(ttft(log.good(arm)))}")
        bursts = [entries for entries in _rounds(log, "identical") if len(entries) == self.concurrency]
        computed = [_computed(entries) for entries in bursts]
        by_counters = [_counted(entries) for entries in bursts]
        tokens = length([entry for entries in bursts for entry in entries])
        each = targets[0].block_size or min(LARGEST_BLOCK, tokens // 2)
        limit = tokens + self.concurrency * each
        told = [value for value in computed if value is not None]
        conclusion.details = {"computed": computed, "computed_by_counters": by_counters, "limit": limit}
        share = "a block" if targets[0].block_size else f"{each:,}"
        if told:
            middle = median(told)
            conclusion.findings.append(
                f"{self.concurrency} identical prompts of {tokens:,} tokens at once: {middle:,.0f} prompt tokens "
                f"computed{_source(bursts)}, {middle / tokens:.2f} of one prompt "
                f"(one prompt and {share} each would be {limit:,})"
            )
            conclusion.is_flagged = middle > limit
        else:
            conclusion.findings.append(f"{_why_unknown(bursts)}: what was computed is unknown")
            conclusion.is_flagged = True
        conclusion.equality = compare_texts([(group[0], entry) for group in bursts for entry in group[1:]])
        return conclusion


def _first(answers: Sequence[Answer]) -> int:
    """Return which of the identical requests computed the prompt: the one with the fewest cached tokens."""
    return min(range(len(answers)), key=lambda place: answers[place].cached_tokens or 0)


def _rounds(log: Log, arm: str) -> list[list[Measurement]]:
    numbers = dict.fromkeys(entry.number for entry in log.good(arm))
    return [[entry for entry in log.good(arm) if entry.number == number] for number in numbers]


def _computed(entries: Sequence[Measurement]) -> int | None:
    cached = sum_cached(entries)
    return None if cached is None else sum(entry.prompt_tokens for entry in entries) - cached


def _why_unknown(bursts: Sequence[Sequence[Measurement]]) -> str:
    if not bursts:
        return "no burst was answered in full"
    if all(entry.answer.cached_tokens is None for entries in bursts for entry in entries):
        return "the server reports no cached tokens"
    return "the server reports cached tokens of some requests only"


def _source(bursts: Sequence[Sequence[Measurement]]) -> str:
    is_reported = all(entry.answer.cached_tokens is not None for entries in bursts for entry in entries)
    return "" if is_reported else " by /metrics"


def _counted(entries: Sequence[Measurement]) -> float | None:
    counters = entries[0].counters
    if counters is None or counters.prompt_tokens is None or counters.cached_tokens is None:
        return None
    return counters.prompt_tokens - counters.cached_tokens
