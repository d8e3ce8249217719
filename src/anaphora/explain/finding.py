"""What a finder of one kind hands back: the code, the place, the words for people, and what would mend it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from anaphora.explain.bodies import ChatBody
from anaphora.explain.comparison import Comparison
from anaphora.explain.records import Certainty


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that mends a kind: two edited bodies to render again, or the tokens that would be in common.

    `change` says what to do. `common` is how many leading tokens would be equal, and of how many in all.
    """

    change: str
    bodies: tuple[ChatBody, ChatBody] | None = None
    common: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One code that applies. `old` and `new` are the differing snippets, untrimmed; None where text says nothing."""

    code: str
    advice: str
    certainty: Certainty = "known"
    path: str | None = None
    old: str | None = None
    new: str | None = None
    fix: Callable[[], Fix | None] | None = None


Finder: TypeAlias = Callable[[Comparison], Finding | None]
"""Recognises one kind in a comparison, or returns None."""


def plural(count: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
