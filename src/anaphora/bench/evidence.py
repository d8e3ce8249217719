"""Is the prefix cached? What three witnesses say: the server's answers, its counters, and the clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anaphora.bench.measurement import Measurement, first_tokens_s
from anaphora.bench.statistics import median, rank_test, ratio_interval

Says = Literal["yes", "no", "cannot tell", "silent"]
Caching = Literal["on", "off", "doubtful", "unknown"]

SIGNIFICANT = 0.05
TOLERATED_BIAS = 0.15
"""Of the time: how far requests that should take equally long may be apart."""

TEST = "one-sided exact Mann-Whitney on the rounds' times to first token, and the bootstrap interval of warm ÷ control"


@dataclass(frozen=True, slots=True)
class Timing:
    """What the clock says of reuse: the interval of warm ÷ control, and how probable it is by chance."""

    says: Says
    ratio: tuple[float, float] | None
    p_value: float | None

    @property
    def figures(self) -> str:
        """What it rests on, for people."""
        if self.ratio is None or self.p_value is None:
            return "fewer than three rounds"
        return f"ratio {self.ratio[0]:.3f} to {self.ratio[1]:.3f}, p = {self.p_value:.2g}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether prefixes are cached, by whom it is said, and where the witnesses differ."""

    caching: Caching
    reported: Says
    counters: Says
    timing: Timing
    disagreements: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "caching": self.caching,
            "reported_by_answers": self.reported,
            "reported_by_counters": self.counters,
            "timing": self.timing.says,
            "timing_ratio": self.timing.ratio,
            "timing_p_value": self.timing.p_value,
            "timing_test": TEST,
        }


def timing(
    warm: Sequence[Measurement],
    control: Sequence[Measurement],
    share: float,
    short: Sequence[Measurement] = (),
) -> Timing:
    """Return whether warm requests are faster than the controls.

    `share` is the part of the prompt that would be reused, `short` are never-seen prompts of a few tokens. "No" needs
    proof that less than half of what computing that part takes was saved, and so that computing it takes time at all:
    where a short prompt waits as long as a long one, the clock cannot tell.
    """
    fast, slow = first_tokens_s(warm), first_tokens_s(control)
    ratio = ratio_interval(fast, slow) if fast and slow else None
    if ratio is None:
        return Timing("cannot tell", None, None)
    p_value = rank_test([median(group) for group in fast], [median(group) for group in slow])
    if p_value <= SIGNIFICANT and ratio[1] < 1:
        return Timing("yes", ratio, p_value)
    worth = share * _prefill_share(short, control)
    return Timing("no" if worth and ratio[0] > 1 - worth / 2 else "cannot tell", ratio, p_value)


def _prefill_share(short: Sequence[Measurement], control: Sequence[Measurement]) -> float:
    """Return the least part of the controls' time that computing their prompts takes, 0 where it cannot be seen."""
    floor, whole = first_tokens_s(short), first_tokens_s(control)
    ratio = ratio_interval(floor, whole) if floor and whole else None
    if (
        ratio is None
        or rank_test(*([median(group) for group in groups] for groups in (floor, whole))) > SIGNIFICANT
    ):
        return 0.0
    return max(0.0, 1 - ratio[1])


def judge(
    warm: Sequence[Measurement],
    never_seen: Sequence[Measurement],
    by_clock: Timing,
    unit: int,
    around: int = 0,
) -> Verdict:
    """Return the verdict; `never_seen` are the requests that nothing can be cached for.

    `around` is how much a server puts around every text, where it does not say which part of that comes first.
    """
    reported = _said([entry.answer.cached_tokens for entry in warm], unit)
    counters = _said([entry.counters.cached_tokens if entry.counters else None for entry in warm], unit)
    told = {reported, counters} - {"silent"}
    disagreements = list(_contradictions(reported, counters, by_clock))
    if wrong := [
        e for e in never_seen if (e.answer.cached_tokens or 0) > min(max(e.planned, around), e.prompt_tokens)
    ]:
        disagreements.append(
            f"{len(wrong)} of {len(never_seen)} never-seen prompts are reported as cached "
            f"({wrong[0].answer.cached_tokens:,} tokens): they were sent before, or the report is wrong"
        )
    return Verdict(_caching(told, by_clock.says), reported, counters, by_clock, tuple(disagreements))


def _said(values: Sequence[float | None], unit: int) -> Says:
    known = [value for value in values if value is not None]
    if not known:
        return "silent"
    return "yes" if sum(known) / len(known) >= unit else "no"


def _caching(told: set[Says], by_clock: Says) -> Caching:
    if by_clock == "yes":
        return "on"
    if by_clock == "no":
        return "doubtful" if "yes" in told else "off"
    if len(told) != 1:
        return "unknown"
    return "on" if told == {"yes"} else "off"


def _contradictions(reported: Says, counters: Says, by_clock: Timing) -> list[str]:
    found = []
    if {reported, counters} == {"yes", "no"}:
        words = {"yes": "reuse", "no": "no reuse"}
        found.append(f"usage says {words[reported]}, /metrics says {words[counters]}")
    for name, said in (("usage", reported), ("/metrics", counters)):
        if said == "yes" and by_clock.says == "no":
            found.append(
                f"{name} reports reuse, but warm requests are not faster than never-seen ones ({by_clock.figures})"
            )
        if said == "no" and by_clock.says == "yes":
            found.append(
                f"{name} reports no reuse, but warm requests are faster than never-seen ones ({by_clock.figures})"
            )
    return found
