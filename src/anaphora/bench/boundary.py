"""Hits round down to whole blocks: prompts that share 15, 16, 17, … tokens with one that was sent before."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.bench.experiment import Bench, Conclusion, cached_of, ttft
from anaphora.bench.measurement import Log, Measurement
from anaphora.bench.session import Plan
from anaphora.bench.statistics import median, slope
from anaphora.bench.target import Target

SHARED = (1, 8, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 79, 80, 95, 96, 97, 111, 112)
_TAIL = 33
"""Tokens behind the longest shared beginning, so that no rule about the last token touches it."""


_CLOCK_MS = 0.05
"""Less than this is nothing that a client can tell."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was seen at one shared length."""

    unit: int
    planned: tuple[int, ...]
    seen: tuple[int | None, ...]
    ttft_ms: float | None
    ttft_low_ms: float | None
    ttft_high_ms: float | None

    @property
    def shared(self) -> int:
        """How many tokens its prompts shared, the middle number where tokens cannot be shared so exactly."""
        return round(median(self.planned))

    @property
    def ideal(self) -> int:
        """The whole blocks of that."""
        return self._whole_blocks(self.shared)

    @property
    def counted(self) -> list[tuple[int, int]]:
        """What was shared and what was found, of each request of which somebody counts it."""
        pairs = zip(self.planned, self.seen, strict=True)
        return [(shared, found) for shared, found in pairs if found is not None]

    @property
    def is_ideal(self) -> bool:
        """Whether every request found exactly the whole blocks."""
        return all(found == self._whole_blocks(shared) for shared, found in self.counted)

    @property
    def text(self) -> str:
        """What was shared, and what was found."""
        return f"{_values(self.planned)}→{_values([found for _, found in self.counted])}"

    def _whole_blocks(self, num_tokens: int) -> int:
        return num_tokens // self.unit * self.unit


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryExperiment:
    """All prompts have one length; in each round each shared length comes once, in random order, primed anew."""

    shared: tuple[int, ...] = SHARED
    rounds: int = 4
    name: str = "boundary"
    loop: str = "closed, one request at a time"
    same_length: bool = True
    as_planned: bool = True

    @property
    def arms(self) -> tuple[str, ...]:
        """One for each shared length."""
        return tuple(f"shares {shared}" for shared in self.shared)

    @property
    def tokens(self) -> int:
        """The length of every prompt."""
        return max(self.shared) + _TAIL

    @property
    def num_requests(self) -> int:
        """A priming one and a measured one for each length."""
        return 2 * self.rounds * len(self.shared)

    @property
    def longest(self) -> int:
        """Prompt and one token."""
        return self.tokens + 1

    async def measure(self, bench: Bench) -> None:
        """Send a pair for each shared length, round by round."""
        prompts = bench.session.prompts
        for number in range(self.rounds):
            for shared in bench.order.sample(self.shared, len(self.shared)):
                pair = await prompts.pair(shared, self.tokens)
                plan = Plan(
                    arm="prime", number=number, axis=shared, planned=prompts.head_tokens, phase="prime"
                )
                await bench.session.prime(pair.first, plan)
                plan = Plan(arm=f"shares {shared}", number=number, axis=shared, planned=pair.shared)
                await bench.session.send(pair.second, plan)

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Draw the staircase, and say whether the clock alone could have shown it."""
        good = log.good()
        unit, source = _unit(good, targets[0])
        steps = [_step([e for e in good if e.axis == axis], unit) for axis in sorted({e.axis for e in good})]
        conclusion = Conclusion(
            details={
                "block_size": unit,
                "block_size_from": source,
                "steps": [
                    {
                        "shared": step.shared,
                        "ideal": step.ideal,
                        "seen": [found for _, found in step.counted],
                        "ttft_ms": step.ttft_ms,
                        "ttft_low_ms": step.ttft_low_ms,
                        "ttft_high_ms": step.ttft_high_ms,
                    }
                    for step in steps
                ],
            }
        )
        _say_staircase(steps, unit, source, conclusion, is_exact=all(entry.prompt.is_exact for entry in good))
        if any(step.counted for step in steps):
            _say_silence(good, unit, conclusion)
        conclusion.findings.append(_clock(good, steps, unit))
        return conclusion


def _unit(good: Sequence[Measurement], target: Target) -> tuple[int, str]:
    if target.block_size is not None:
        return target.block_size, target.block_size_from
    seen = {cached_of(entry) for entry in good} - {None, 0}
    common = math.gcd(*(value for value in seen if value))
    if len(seen) > 1 and common:
        return common, "inferred: the greatest common divisor of the hits seen"
    return 1, target.block_size_from


def _step(entries: Sequence[Measurement], unit: int) -> Step:
    times = ttft(entries)
    low, high = (times.low, times.high) if times else (None, None)
    return Step(
        unit=unit,
        planned=tuple(entry.planned for entry in entries),
        seen=tuple(cached_of(entry) for entry in entries),
        ttft_ms=times.median * 1000 if times else None,
        ttft_low_ms=None if low is None else low * 1000,
        ttft_high_ms=None if high is None else high * 1000,
    )


def _say_staircase(
    steps: Sequence[Step], unit: int, source: str, conclusion: Conclusion, *, is_exact: bool
) -> None:
    told = [step for step in steps if step.counted]
    if not told:
        conclusion.findings.append(
            "the server reports no cached tokens, so the staircase can only be seen by timing"
        )
        conclusion.is_flagged = True
        return
    stairs = ", ".join(step.text for step in told)
    conclusion.findings.append(f"shared → cached tokens: {stairs}")
    off = [step for step in told if not step.is_ideal]
    size = f"blocks of {unit} token{'s' if unit > 1 else ''} ({source})"
    if not any(found for step in told for _, found in step.counted):
        conclusion.findings.append("nothing was reused at any length: caching is off, or not reported")
        conclusion.is_flagged = True
    elif not is_exact:
        conclusion.findings.append(
            f"the shared lengths are estimates, so hits cannot be held against {size}: the server does not count tokens"
        )
        conclusion.is_flagged = True
    elif off:
        wrong = ", ".join(f"{step.text} instead of {step.ideal}" for step in off)
        conclusion.findings.append(f"hits are not those of {size}: {wrong}")
        conclusion.is_flagged = True
    else:
        conclusion.findings.append(f"every hit is the shared beginning rounded down to {size}")


def _say_silence(good: Sequence[Measurement], unit: int, conclusion: Conclusion) -> None:
    """Say who counted where answers are silent; some servers report only hits, and are silent about a miss."""
    silent = [entry for entry in good if entry.answer.cached_tokens is None]
    unknown = [entry for entry in silent if cached_of(entry) is None]
    answers = (
        "the answers report" if len(silent) == len(good) else f"{len(silent)} of {len(good)} answers report"
    )
    if unknown:
        lengths = ", ".join(str(axis) for axis in sorted({entry.axis for entry in unknown}))
        conclusion.findings.append(
            f"{answers} no cached tokens, and nobody counts them (sharing {lengths}): "
            "a server that reports only hits found nothing there"
        )
        conclusion.is_flagged |= any(entry.planned >= unit for entry in unknown)
    elif silent:
        conclusion.findings.append(f"{answers} no cached tokens; theirs above are counted by /metrics")


def _values(values: Sequence[int]) -> str:
    return "/".join(str(value) for value in sorted(set(values)))


def _clock(good: Sequence[Measurement], steps: Sequence[Step], unit: int) -> str:
    """Say how large a step of one block is in time, beside the width of the intervals."""
    points = [(e.prompt_tokens - (cached_of(e) or 0), e.answer.ttft_s) for e in good]
    timed = [(float(tokens), seconds) for tokens, seconds in points if seconds is not None]
    per_token = slope([x for x, _ in timed], [y for _, y in timed]) if timed else None
    widths = [
        s.ttft_high_ms - s.ttft_low_ms
        for s in steps
        if s.ttft_high_ms is not None and s.ttft_low_ms is not None
    ]
    if per_token is None or not widths:
        return "timing alone cannot show the steps: too few requests, or no reuse to fit a line through"
    step_ms, width_ms = per_token * unit * 1000, median(widths)
    facts = (
        f"one block of {unit} is worth {step_ms:.2f} ms by the fitted line, "
        f"and the intervals of the medians are {width_ms:.2f} ms wide"
    )
    if step_ms <= max(2 * width_ms, _CLOCK_MS):
        return f"timing alone cannot show the steps: {facts}"
    return f"timing alone could show the steps: {facts}"
