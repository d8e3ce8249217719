"""A value that changes with every request: what it costs at the beginning of the prompt, and what at its end."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.bench.evidence import timing
from anaphora.bench.experiment import Bench, Conclusion, hit_rate, length, ms, share_cached, ttft
from anaphora.bench.measurement import Log, Prompt
from anaphora.bench.session import Plan
from anaphora.bench.statistics import interleaved
from anaphora.bench.target import Target

UNITS = (("first", "control"), ("last", "control"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutExperiment:
    """Each arm has its own document a round: it is sent with one time of day, then measured with another."""

    tokens: int = 1000
    rounds: int = 8
    output_tokens: int = 8
    name: str = "layout"
    arms: tuple[str, ...] = ("first", "last", "control")
    loop: str = "closed, one request at a time"
    same_length: bool = True
    as_planned: bool = True

    @property
    def num_requests(self) -> int:
        """Two priming ones, a first, a last and two controls a round."""
        return self.rounds * 6

    @property
    def longest(self) -> int:
        """Prompt and output, and some room for the time of day."""
        return self.tokens + self.output_tokens + 8

    async def measure(self, bench: Bench) -> None:
        """Prime and measure round by round."""
        prompts, session = bench.session.prompts, bench.session
        for number, arm in interleaved(bench.order, self.rounds, UNITS):
            if arm == "control":
                prompt, planned = await prompts.fresh(self.tokens), prompts.head_tokens
            else:
                old, prompt = await self._pair(bench, arm)
                plan = Plan(
                    arm="prime",
                    number=number,
                    planned=prompts.head_tokens,
                    max_tokens=self.output_tokens,
                    phase="prime",
                )
                await session.prime(old, plan)
                planned = await prompts.shared(old, prompt)
            await session.send(
                prompt, Plan(arm=arm, number=number, planned=planned, max_tokens=self.output_tokens)
            )

    async def _pair(self, bench: Bench, arm: str) -> tuple[Prompt, Prompt]:
        """Return one document with two times of day, before or behind it."""
        prompts, (early, late) = bench.session.prompts, _times(bench.order)
        if arm == "first":
            old = await prompts.fitted(self.tokens, before=early)
            return old, await prompts.prompt(late + old.text.removeprefix(early))
        old = await prompts.fitted(self.tokens, after=early)
        return old, await prompts.prompt(old.text.removesuffix(early) + late)

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Say what the place of the value costs."""
        arms = {arm: log.good(arm) for arm in ("first", "last", "control")}
        shares = {arm: share_cached(entries) for arm, entries in arms.items()}
        conclusion = Conclusion(details={"hit_rates": shares})
        for arm in ("first", "last"):
            conclusion.findings.append(
                f"time of day {arm}: hit rate {hit_rate(arms[arm])}, time to first token {ms(ttft(arms[arm]))}"
            )
        conclusion.findings.append(f"never seen: time to first token {ms(ttft(arms['control']))}")
        by_clock = timing(arms["last"], arms["first"], 1.0)
        beside = timing(arms["last"], arms["control"], 1.0)
        if by_clock.says == beside.says == "yes" and by_clock.ratio:
            low, high = by_clock.ratio
            first, last = hit_rate(arms["first"]), hit_rate(arms["last"])
            conclusion.claims.append(
                f"with the value last (hit rate {last}), the first token takes {low:.3f} to {high:.3f} of the time "
                f"with the value first ({first}), on prompts of {length(arms['last']):,} tokens, one request at a time"
            )
        else:
            conclusion.findings.append(
                f"no gain is claimed, since last is not clearly below first ({by_clock.figures}) "
                f"and never seen ({beside.figures})"
            )
            conclusion.is_flagged = True
        conclusion.details["last_to_first"] = by_clock.ratio
        return conclusion


def _times(rng: random.Random) -> tuple[str, str]:
    """Return two times of one day, both new, whose first digit differs."""
    day = f"{rng.randrange(2000, 2100)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    early, late = (f"{rng.randrange(10):02}:{rng.randrange(60):02}:{rng.randrange(60):02}" for _ in range(2))
    return f"{day} {early}.", f"{day} 1{late[1:]}."
