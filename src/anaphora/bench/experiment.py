"""What every experiment is: it measures into a log, and concludes from the log alone.

So a run that was broken off is concluded in the same way, from what there is.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from anaphora.bench.measurement import Log, Measurement, first_tokens_s, sum_known
from anaphora.bench.session import Session
from anaphora.bench.statistics import Spread, median, spread
from anaphora.bench.target import Target
from anaphora.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Equality:
    """How many outputs were compared, cached against uncached at temperature 0, and how many differ."""

    compared: int
    different: int


@dataclass(slots=True)
class Conclusion:
    """What was found, what the witnesses disagree on, and what speaks against a comparison.

    `claims` rank arms, each with hit rate, length and concurrency; they are shown only if nothing speaks against it.
    `is_flagged` says that there is something to look at: the exit code is then 2.
    """

    findings: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    equality: Equality | None = None
    details: dict[str, Any] = field(default_factory=dict)
    is_flagged: bool = False


@dataclass(slots=True)
class Bench:
    """What an experiment works with: the servers, the order of the arms, and the list of all requests."""

    sessions: Sequence[Session]
    log: Log
    order: random.Random

    @property
    def session(self) -> Session:
        """The only, or first, server."""
        return self.sessions[0]


class Experiment(Protocol):
    """One of the seven.

    `same_length` says that its arms must have prompts of one length, `as_planned` that every request must find what
    an earlier one stored.
    """

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    @property
    def loop(self) -> str:
        """Whether requests wait for each other, and how many run at once."""

    @property
    def same_length(self) -> bool:
        """Whether arms can only be compared at one length."""

    @property
    def as_planned(self) -> bool:
        """Whether reuse that is lower than planned spoils the comparison."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Its arms, in the order in which they are shown."""

    @property
    def num_requests(self) -> int:
        """How many requests will be sent."""

    @property
    def longest(self) -> int:
        """The most tokens that one request takes, output included."""

    async def measure(self, bench: Bench) -> None:
        """Send all requests."""

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Say what the log shows."""


def check_fits(experiment: Experiment, target: Target) -> None:
    """Refuse prompts that the server's context cannot hold."""
    if target.max_model_len is not None and experiment.longest > target.max_model_len:
        raise ConfigError(
            f"the longest request of {experiment.name} takes {experiment.longest:,} tokens, but {target.model} has "
            f"a context of {target.max_model_len:,}; choose shorter prompts or outputs"
        )


def compare_texts(pairs: Sequence[tuple[Measurement, Measurement]]) -> Equality:
    """Return how many pairs of complete outputs differ."""
    both = [(a.answer, b.answer) for a, b in pairs if a.is_good and b.is_good]
    return Equality(len(both), sum((a.text, a.token_ids) != (b.text, b.token_ids) for a, b in both))


def ms(found: Spread | None) -> str:
    """Return a median in milliseconds with its interval."""
    if found is None:
        return "no time"
    if found.low is None or found.high is None:
        return f"{found.median * 1000:,.1f} ms (n = {found.n})"
    return f"{found.median * 1000:,.1f} ms [{found.low * 1000:,.1f} to {found.high * 1000:,.1f}]"


def ttft(entries: Sequence[Measurement]) -> Spread | None:
    """Return how the times to first token of some requests lie."""
    return spread(first_tokens_s(entries))


def cached_of(entry: Measurement) -> int | None:
    """Return how many tokens of a prompt were found cached: by the answer, else by the counters, else None.

    Only for a request that was sent alone: of those sent together, the first holds the counters of all.
    """
    if entry.answer.cached_tokens is not None:
        return entry.answer.cached_tokens
    counted = entry.counters.cached_tokens if entry.counters else None
    return None if counted is None else round(counted)


def sum_cached(entries: Sequence[Measurement]) -> int | None:
    """Return the sum of what was found cached: by all answers, else by the counters of all, else None.

    The two are never added up, because the counters of one entry may be those of all that were sent together.
    """
    reported = sum_known([entry.answer.cached_tokens for entry in entries])
    if reported is not None:
        return reported
    return sum_known([entry.counters.cached_tokens if entry.counters else None for entry in entries])


def share_cached(entries: Sequence[Measurement]) -> float | None:
    """Return the hit rate, weighted by tokens, or None when nobody says it of one of them."""
    cached, total = sum_cached(entries), sum(entry.prompt_tokens for entry in entries)
    return None if cached is None or not total else cached / total


def hit_rate(entries: Sequence[Measurement]) -> str:
    """Return the hit rate for people, with its source where that is not the answers."""
    share = share_cached(entries)
    if share is None:
        return "not reported"
    is_reported = all(entry.answer.cached_tokens is not None for entry in entries)
    return f"{share:.1%}" if is_reported else f"{share:.1%} by /metrics"


def at_hit_rate(entries: Sequence[Measurement]) -> str:
    """Return the hit rate as the condition of a figure."""
    return "at a hit rate " + (
        "that nobody reports" if share_cached(entries) is None else f"of {hit_rate(entries)}"
    )


def length(entries: Sequence[Measurement]) -> int:
    """Return the middle length of some prompts in tokens."""
    return round(median([entry.prompt_tokens for entry in entries])) if entries else 0
