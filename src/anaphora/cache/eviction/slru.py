"""Segmented LRU: pages that were never hit go before pages that were.

A burst of prompts that nobody sends again passes through the probation segment and leaves the rest alone.
"""

from collections.abc import Iterator, Sequence

from anaphora.cache.eviction.policy import HitCounting
from anaphora.cache.free_queue import FreeQueue
from anaphora.cache.page import Page

PROTECTED_SHARE = 0.2
_PROBATION, _PROTECTED = 0, 1


class SLRU(HitCounting):
    """Two queues, each least recently released first: all of probation goes before anything protected.

    A page that was hit is released into the protected segment, which holds at most `PROTECTED_SHARE` of the
    pool. What overflows, oldest first, goes to probation's recent end and must be hit again to come back.
    """

    def __init__(self, num_usable_pages: int) -> None:
        self._most_protected = int(PROTECTED_SHARE * num_usable_pages)
        self._segments = (FreeQueue(), FreeQueue())

    def __len__(self) -> int:
        """Return the number of pages."""
        probation, protected = self._segments
        return len(probation) + len(protected)

    def __iter__(self) -> Iterator[Page]:
        """Yield probation, then the protected pages."""
        for segment in self._segments:
            yield from segment

    def add(self, pages: Sequence[Page], released: Sequence[Page]) -> None:
        """Put each page at the recent end of its segment."""
        probation, protected = self._segments
        for page in pages:
            page.rank = _PROTECTED if page.num_hits else _PROBATION
        probation.append_all([page for page in pages if page.rank == _PROBATION])
        protected.append_all([page for page in pages if page.rank == _PROTECTED])
        # Only now: a page pushed out must stand behind a deeper page that was handed over with it.
        num_over = len(protected) - self._most_protected
        if num_over > 0:
            demoted = protected.take(num_over)
            for page in demoted:
                page.rank, page.num_hits = _PROBATION, 0
            probation.append_all(demoted)

    def remove(self, page: Page) -> None:
        """Take a page out of its segment."""
        self._segments[int(page.rank)].remove(page)

    def take(self, num_pages: int) -> list[Page]:
        """Take from probation, then from the protected pages."""
        probation, protected = self._segments
        num_probation = min(num_pages, len(probation))
        return probation.take(num_probation) + protected.take(num_pages - num_probation)

    def check_invariants(self) -> None:
        """Assert that each page stands in its segment and that the protected one is not too large."""
        for rank, segment in enumerate(self._segments):
            pages = list(segment)
            assert len(pages) == len(segment), f"segment {rank}: the length is wrong"
            assert all(page.rank == rank for page in pages), f"a page stands in segment {rank} by mistake"
            assert rank == _PROBATION or all(page.num_hits for page in pages), "a page is protected unhit"
        assert len(self._segments[_PROTECTED]) <= self._most_protected, "too many pages are protected"
