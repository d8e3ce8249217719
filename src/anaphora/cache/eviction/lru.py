"""Least recently released first: the classic order, and the default."""

from collections.abc import Sequence

from anaphora.cache.free_queue import FreeQueue
from anaphora.cache.page import Page


class LRU(FreeQueue):
    """A queue; who is released last stands last."""

    __slots__ = ()

    def add(self, pages: Sequence[Page], released: Sequence[Page]) -> None:
        """Put the pages at the tail, in the order given."""
        self._insert(self._end.previous, pages)

    def hit(self, pages: Sequence[Page]) -> None:
        """Note nothing: the release to come says it."""

    def check_invariants(self) -> None:
        """Assert that the count is right."""
        assert sum(1 for _ in self) == len(self), "the queue's length is wrong"
