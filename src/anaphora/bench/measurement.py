"""One request as it was sent and answered, and the list of all of them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Phase = Literal["prime", "measure", "probe"]
"""Filling the cache, measuring, and asking what helps to read the measured times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a request asks: a text, ids that stand for it, or a conversation; with its length in tokens.

    `is_exact` is False where the length is an estimate, because the server does not count tokens.
    """

    text: str
    num_tokens: int
    is_exact: bool = True
    ids: tuple[int, ...] | None = None
    messages: tuple[Mapping[str, str], ...] | None = None

    @property
    def digest(self) -> str:
        """A short name of the content."""
        content = repr((self.text, self.ids, self.messages))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, and when, in seconds from sending. `failure` is None only for a complete answer.

    `ttft_s` ends at the first content byte. `gaps_s` lie between pieces of content, which may hold several tokens.
    """

    e2e_s: float
    ttft_s: float | None = None
    gaps_s: tuple[float, ...] = ()
    text: str = ""
    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    header: str | None = None
    failure: str | None = None
    is_cut: bool = False
    is_unreachable: bool = False

    @property
    def tpot_s(self) -> float | None:
        """Seconds per output token after the first; None for a single one, or where all came in one piece."""
        if not self.gaps_s or self.completion_tokens is None or self.completion_tokens < 2:
            return None
        return sum(self.gaps_s) / (self.completion_tokens - 1)


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """How far the server's own counters went: tokens of prompts, and those of them that it found cached."""

    prompt_tokens: float | None
    cached_tokens: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One request: which arm and round, what reuse was planned, and what came of it.

    `planned` is how many tokens at its beginning an earlier prompt had too. `axis` is the value that the
    experiment varies, such as a length or the number of a turn.
    """

    arm: str
    number: int
    phase: Phase
    prompt: Prompt
    planned: int
    answer: Answer
    axis: int = 0
    max_tokens: int = 0
    queue_s: float = 0.0
    counters: CounterDelta | None = None

    @property
    def prompt_tokens(self) -> int:
        """The prompt's length: the server's word, else the count before sending."""
        known = self.answer.prompt_tokens
        return self.prompt.num_tokens if known is None else known

    @property
    def is_good(self) -> bool:
        """Whether it was answered in full."""
        return self.answer.failure is None

    def as_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        answer, counters = self.answer, self.counters
        return {
            "arm": self.arm,
            "number": self.number,
            "phase": self.phase,
            "axis": self.axis,
            "prompt": self.prompt.digest,
            "prompt_tokens": self.prompt_tokens,
            "planned_tokens": self.planned,
            "cached_tokens": answer.cached_tokens,
            "counted_cached_tokens": None if counters is None else counters.cached_tokens,
            "cache_header": answer.header,
            "completion_tokens": answer.completion_tokens,
            "ttft_s": answer.ttft_s,
            "tpot_s": answer.tpot_s,
            "gaps_s": [round(gap, 6) for gap in answer.gaps_s],
            "e2e_s": answer.e2e_s,
            "queue_s": self.queue_s,
            "finish_reason": answer.finish_reason,
            "failure": answer.failure,
            "cut": answer.is_cut,
        }


@dataclass(slots=True)
class Log:
    """All requests of a run in their order."""

    entries: list[Measurement] = field(default_factory=list)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Measurement) -> None:
        """Put a request behind the others."""
        self.entries.append(entry)

    @property
    def measured(self) -> list[Measurement]:
        """Those that count: not the priming ones, nor the probes."""
        return [entry for entry in self.entries if entry.phase == "measure"]

    def good(self, *arms: str) -> list[Measurement]:
        """The measured ones of some arms (of all, if none is named) that were answered in full."""
        return [entry for entry in self.measured if entry.is_good and (not arms or entry.arm in arms)]

    @property
    def prompt_set(self) -> str:
        """A short name of all prompts in their order."""
        digests = "".join(entry.prompt.digest for entry in self.entries)
        return hashlib.sha256(digests.encode()).hexdigest()[:16]


def by_round(
    entries: Iterable[Measurement], value: Callable[[Measurement], float | None]
) -> list[list[float]]:
    """Return what is known of some requests, the values of one round together."""
    rounds: dict[int, list[float]] = {}
    for entry in entries:
        known = value(entry)
        if known is not None:
            rounds.setdefault(entry.number, []).append(known)
    return list(rounds.values())


def first_tokens_s(entries: Iterable[Measurement]) -> list[list[float]]:
    """Return the times to the first token of those that had one, by round."""
    return by_round(entries, lambda entry: entry.answer.ttft_s)


def sum_known(values: Sequence[float | None]) -> int | None:
    """Return the sum, or None unless every value is known."""
    known = [value for value in values if value is not None]
    return round(sum(known)) if known and len(known) == len(values) else None
