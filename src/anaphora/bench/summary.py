"""Requests summed up by arm, and what speaks against comparing them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anaphora.bench.measurement import Log, Measurement, by_round, first_tokens_s, sum_known
from anaphora.bench.statistics import Spread, median, spread
from anaphora.bench.target import LARGEST_BLOCK, Target

_TOLERATED_ESTIMATE = 0.05


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """What is known of one arm. Token sums are over its complete requests; None is what nobody said."""

    arm: str
    sent: int
    failed: int
    cut: int
    prompt_tokens: int
    achievable: int
    reported: int | None
    counted: int | None
    ttft: Spread | None
    tpot: Spread | None
    e2e: Spread | None
    queue: Spread | None

    @property
    def achieved(self) -> float | None:
        """Reported (else counted) reuse in parts of the achievable."""
        known = self.reported if self.reported is not None else self.counted
        return None if known is None or not self.achievable else known / self.achievable

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self) | {"achieved_of_achievable": self.achieved}


def achievable(entry: Measurement, unit: int) -> int:
    """Return the reuse that a cache which forgets nothing could give: whole blocks, the last token never."""
    return min(entry.planned, entry.prompt_tokens - 1) // unit * unit


def summarise(log: Log, target: Target, arms: Sequence[str]) -> list[ArmSummary]:
    """Return those arms of which a request was sent, priming left out."""
    sent = {entry.arm for entry in log.measured}
    return [
        _summary(arm, [e for e in log.measured if e.arm == arm], target.unit) for arm in arms if arm in sent
    ]


def _summary(arm: str, entries: Sequence[Measurement], unit: int) -> ArmSummary:
    good = [entry for entry in entries if entry.is_good]
    return ArmSummary(
        arm=arm,
        sent=len(entries),
        failed=len(entries) - len(good),
        cut=sum(entry.answer.is_cut for entry in entries),
        prompt_tokens=sum(entry.prompt_tokens for entry in good),
        achievable=sum(achievable(entry, unit) for entry in good),
        reported=sum_known([entry.answer.cached_tokens for entry in good]),
        counted=sum_known([entry.counters.cached_tokens if entry.counters else None for entry in good]),
        ttft=spread(first_tokens_s(good)),
        tpot=spread(by_round(good, lambda entry: entry.answer.tpot_s)),
        e2e=spread(by_round(good, lambda entry: entry.answer.e2e_s)),
        queue=spread(by_round(good, lambda entry: entry.queue_s)),
    )


def doubts(log: Log, target: Target, *, same_length: bool, as_planned: bool) -> list[str]:
    """Return the reasons, common to all experiments, not to compare the arms."""
    found = [*_failures(log), *_foreign(log), *_impossible(log)]
    if as_planned:
        found += _planned_and_seen(log, target)
        found += _seen_before(log, target)
    if not log.good():
        found.append("no request was answered")
    if same_length:
        found += _lengths(log, target.unit)
    if any(not entry.prompt.is_exact and entry.answer.prompt_tokens is None for entry in log.good()):
        found.append("prompt lengths are estimates: the server neither counts tokens nor reports usage")
    return found


def _failures(log: Log) -> list[str]:
    failed = [entry for entry in log if not entry.is_good]
    if not failed:
        return []
    cut = sum(entry.answer.is_cut for entry in failed)
    return [
        f"{len(failed)} of {len(log)} requests failed, {cut} of them cut short; the first: {failed[0].answer.failure}"
    ]


def _planned_and_seen(log: Log, target: Target) -> list[str]:
    """Arms whose reported reuse is off by more than one block: a runner may have to give one block back."""
    found = []
    for arm in dict.fromkeys(entry.arm for entry in log.good()):
        entries = [e for e in log.good(arm) if e.answer.cached_tokens is not None and e.prompt.is_exact]
        floor = target.block_size or LARGEST_BLOCK
        off = [e for e in entries if not _as_planned(e, target.unit, floor)]
        if off:
            planned = median([achievable(entry, target.unit) for entry in off])
            seen = median([entry.answer.cached_tokens or 0 for entry in off])
            found.append(
                f"planned and seen reuse differ in {len(off)} of {len(entries)} {arm} requests "
                f"(achievable {planned:,.0f}, seen {seen:,.0f})"
            )
    return found


def _seen_before(log: Log, target: Target) -> list[str]:
    """Where lengths are estimates, reuse of never-seen prompts that no head common to all can explain."""
    prompts = [e for e in log.good() if not e.prompt.is_exact and not e.planned]
    limit = target.num_around + target.unit
    wrong = [e for e in prompts if (e.answer.cached_tokens or 0) > limit]
    if not wrong:
        return []
    return [
        (
            f"{len(wrong)} of {len(prompts)} never-seen prompts are reported as cached "
            f"({wrong[0].answer.cached_tokens:,} tokens)"
        )
    ]


def _impossible(log: Log) -> list[str]:
    wrong = [e for e in log.good() if (e.answer.cached_tokens or 0) > e.prompt_tokens]
    if not wrong:
        return []
    cached, tokens = wrong[0].answer.cached_tokens, wrong[0].prompt_tokens
    return [
        (
            f"{len(wrong)} answers report more cached tokens than their prompts have ({cached:,} of {tokens:,}): "
            "what this server reports is not reuse"
        )
    ]


def _as_planned(entry: Measurement, unit: int, floor: int) -> bool:
    seen = entry.answer.cached_tokens or 0
    return achievable(entry, unit) - floor <= seen <= min(entry.planned, entry.prompt_tokens)


def _foreign(log: Log) -> list[str]:
    """Whether the counters moved by more than what was sent."""
    pairs = [
        (entry.counters.prompt_tokens, entry.answer.prompt_tokens)
        for entry in log
        if entry.counters and entry.is_good
    ]
    known = [(counted, sent) for counted, sent in pairs if counted is not None and sent is not None]
    extra = sum(counted - sent for counted, sent in known)
    if any(counted < 0 for counted, _ in known):
        return ["the server's counters went back: it was started anew, or there are several that take turns"]
    if extra > 0:
        return [
            f"the server's counters moved by {extra:,.0f} prompt tokens more than was sent: others use the server too"
        ]
    return []


def _lengths(log: Log, unit: int) -> list[str]:
    lengths = {
        arm: median([e.prompt_tokens for e in log.good(arm)])
        for arm in dict.fromkeys(e.arm for e in log.good())
    }
    outputs = {
        arm: median([e.answer.completion_tokens or 0 for e in log.good(arm)])
        for arm in dict.fromkeys(e.arm for e in log.good())
    }
    found = []
    longest = max(lengths.values(), default=0)
    # Words of several tokens cannot be counted out beforehand where the server does not count.
    estimated = any(not entry.prompt.is_exact for entry in log.good())
    tolerated = max(unit, 4, _TOLERATED_ESTIMATE * longest if estimated else 0)
    if lengths and longest - min(lengths.values()) > tolerated:
        found.append(
            "prompts differ in length: " + ", ".join(f"{arm} {n:,.0f}" for arm, n in lengths.items())
        )
    if outputs and max(outputs.values()) > 1.25 * min(outputs.values()):
        found.append(
            "outputs differ in length: " + ", ".join(f"{arm} {n:,.0f}" for arm, n in outputs.items())
        )
    return found


def counter_gaps(log: Log) -> list[str]:
    """Return, arm by arm, where `cached_tokens` and the counters do not add up to the same sum.

    Answers that are silent leave room for more, but not for less than the others say.
    """
    found = []
    for arm in dict.fromkeys(entry.arm for entry in log.good()):
        pairs = [
            (entry.answer.cached_tokens, entry.counters.cached_tokens)
            for entry in log.good(arm)
            if entry.counters and entry.counters.cached_tokens is not None
        ]
        said = [reported for reported, _ in pairs if reported is not None]
        usage, counted = sum(said), sum(moved for _, moved in pairs if moved is not None)
        if said and (counted < usage or (counted > usage and len(said) == len(pairs))):
            found.append(f"{arm}: usage says {usage:,} cached tokens, /metrics {counted:,.0f}")
    headers = [
        e for e in log.good() if e.answer.header and f"hit={e.answer.cached_tokens};" not in e.answer.header
    ]
    if headers:
        found.append(f"{len(headers)} answers have an x-anaphora-cache header that differs from their usage")
    return found
