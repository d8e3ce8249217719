"""What a pool asks of an eviction policy: in which order idle cached pages are given up.

A policy holds idle pages that answer for digests, and nothing else: never a page that is referenced, pinned or
empty. It has no clock; what ages, ages by pages taken.

One rule binds all policies, because a page whose parent is gone cannot be found: **a page never goes before a
deeper page of its chain.** A request holds a whole chain from its root and hands it over deepest first, so a parent
is never hit less often nor released earlier than its child. It is enough that a policy never ranks a page lower
for more hits or a later release, and that among equals the one handed over first goes first. A policy that ranks
by anything else must see to the rule itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

from anaphora.cache.page import Page


class EvictionPolicy(Protocol):
    """An order of idle cached pages; every verb costs O(1) or O(log n) per page."""

    def __len__(self) -> int:
        """Return the number of pages."""

    def __iter__(self) -> Iterator[Page]:
        """Yield the pages, the next to be taken first; may cost more than the verbs."""

    def add(self, pages: Sequence[Page], released: Sequence[Page]) -> None:
        """Take in pages that became idle, the deepest of a chain first.

        `released` is all that was handed over with them, in the same order, others' pages included.
        """

    def remove(self, page: Page) -> None:
        """Let one page go that is no longer idle, or no longer cached."""

    def remove_all(self, pages: Sequence[Page]) -> None:
        """Let several pages go."""

    def hit(self, pages: Sequence[Page]) -> None:
        """Note that a request found these pages; they are referenced by now."""

    def take(self, num_pages: int) -> list[Page]:
        """Remove and return the first so many pages of the order; the caller has checked that they are there."""

    def check_invariants(self) -> None:
        """Assert that the policy's own books agree."""


class HitCounting(ABC):
    """The part of a policy that counts the hits of each page, and has no quicker way to let many go."""

    @abstractmethod
    def remove(self, page: Page) -> None:
        """Let one page go that is no longer idle, or no longer cached."""

    def remove_all(self, pages: Sequence[Page]) -> None:
        """Let several pages go."""
        for page in pages:
            self.remove(page)

    def hit(self, pages: Sequence[Page]) -> None:
        """Count one hit for each page."""
        for page in pages:
            page.num_hits += 1
