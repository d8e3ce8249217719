"""Pages that are kept until a time, whatever else is asked for.

Knows no clock: `until` and `now` are numbers of one clock, handed in. Knows nothing of references: the pool holds one
for each pinned page.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from anaphora.cache.page import Page
from anaphora.config import KVLayout


class Pins:
    """Until when each pinned page is kept; of several times the latest counts."""

    __slots__ = ("_due", "_order", "_until")

    def __init__(self) -> None:
        self._until: dict[Page, float] = {}
        # One entry a page, (time, place in the order of pinning, page); was the time extended, it goes back in.
        self._due: list[tuple[float, int, Page]] = []
        self._order = 0

    def __len__(self) -> int:
        """Return how many pages are pinned."""
        return len(self._until)

    def __contains__(self, page: Page) -> bool:
        """Whether a page is pinned."""
        return page in self._until

    def pages(self) -> list[Page]:
        """Return the pinned pages; another thread than the pool's may ask, too."""
        return list(self._until)

    def add(self, pages: Sequence[Page], until: float) -> None:
        """Keep pages until then at least."""
        for page in pages:
            present = self._until.get(page)
            if present is None:
                heappush(self._due, (until, self._order, page))
                self._order += 1
            if present is None or until > present:
                self._until[page] = until

    def lapse(self, now: float) -> list[Page]:
        """Forget the pages whose time has come, and return them; O(1) when there are none.

        The deepest comes first, and of equals the one that was pinned first.
        """
        lapsed = []
        while self._due and self._due[0][0] <= now:
            _, order, page = heappop(self._due)
            if self._until[page] > now:
                heappush(self._due, (self._until[page], order, page))
            else:
                del self._until[page]
                lapsed.append((order, page))
        return deepest_first([page for _, page in sorted(lapsed)])

    def clear(self) -> list[Page]:
        """Forget all pins, and return their pages in the order of `lapse`."""
        pages = deepest_first(self.pages())
        self._until.clear()
        self._due.clear()
        return pages

    def check_invariants(self) -> None:
        """Assert that every pinned page is due once, and not later than it is kept."""
        assert len(self._due) == len(self._until), "a pinned page is due twice or never"
        for due, _, page in self._due:
            assert due <= self._until[page], f"{page} is due after its time"
            assert page.blocks, f"{page} is pinned and answers for nothing"


def deepest_first(pages: Sequence[Page]) -> list[Page]:
    """Return the pages in an order in which they can be released."""
    return sorted(pages, key=lambda page: -page.depth)


def pinnable_pages(layout: KVLayout, max_pinned_share: float, max_model_len: int) -> int:
    """Return how many pages may be pinned at once: that share of all, but never so many that one request of full
    length could not run.
    """
    num_needed = layout.num_pages_for(max_model_len)
    return max(0, min(int(max_pinned_share * layout.num_usable_pages), layout.num_usable_pages - num_needed))
