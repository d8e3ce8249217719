"""Least loss first: what a page costs to compute again, times how likely it is to be asked for again."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from anaphora.cache.eviction.policy import HitCounting
from anaphora.cache.page import Page

# Where attention over what came before costs as much as the rest of a token's work.
BREAK_EVEN_TOKENS = 32768
# Dead entries that a heap may always have, so that small heaps are not rebuilt all the time.
_SLACK = 64


class CostAware(HitCounting):
    """Greedy-dual: a page's rank is the age at its release + cost × (1 + hits), and the lowest rank goes first.

    The age is the rank of the last victim, so a page that nobody asks for is overtaken in the end. The cost of one of
    its tokens grows with the position: all of a model's weights, plus attention over everything before.

    Since a deeper page costs more, the rule that it must not outlive its parent has to be enforced: a chain is handed
    over deepest first, and a page's rank is raised to that of the deeper pages before it, also while others still
    refer to it. A rank never falls as long as the page keeps its content.

    A heap with lazy deletion: at most half of its entries, and a few, are dead.
    """

    def __init__(self, page_size: int) -> None:
        self._page_size = page_size
        self._age = 0
        self._heap: list[tuple[int, int, Page]] = []  # rank, order of release, page
        self._orders: dict[Page, int] = {}  # of the idle pages; an entry with another order is dead
        self._next_order = 0

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self._orders)

    def __iter__(self) -> Iterator[Page]:
        """Yield the pages by rank."""
        return (page for _, order, page in sorted(self._heap) if self._orders.get(page) == order)

    def add(self, pages: Sequence[Page], released: Sequence[Page]) -> None:
        """Rank the pages, and raise the parents of those that became idle before them."""
        self._rank(released)
        for page in pages:
            self._orders[page] = self._next_order
            heappush(self._heap, (page.rank, self._next_order, page))
            self._next_order += 1

    def _rank(self, released: Sequence[Page]) -> None:
        floor, last_depth = 0, 0
        for page in released:
            if not page.blocks:
                continue
            if page.depth >= last_depth:
                floor = 0  # another chain begins
            cost = BREAK_EVEN_TOKENS + page.depth * self._page_size
            floor = page.rank = max(floor, page.rank, self._age + cost * (1 + page.num_hits))
            last_depth = page.depth

    def remove(self, page: Page) -> None:
        """Leave the page's entry dead in the heap, and sweep when there are too many."""
        del self._orders[page]
        if len(self._heap) > 2 * len(self._orders) + _SLACK:
            self._heap = [entry for entry in self._heap if self._orders.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def take(self, num_pages: int) -> list[Page]:
        """Take the lowest ranks and become as old as the last victim."""
        assert 0 <= num_pages <= len(self), f"{num_pages} pages wanted of {len(self)}"
        taken: list[Page] = []
        while len(taken) < num_pages:
            rank, order, page = heappop(self._heap)
            if self._orders.get(page) == order:
                del self._orders[page]
                taken.append(page)
                self._age = rank
        return taken

    def check_invariants(self) -> None:
        """Assert that each page has one live entry, under its rank, and that few are dead."""
        live = [(rank, page) for rank, order, page in self._heap if self._orders.get(page) == order]
        assert len(live) == len(self._orders), "a page has no entry, or two"
        assert all(page.rank == rank for rank, page in live), "a page stands under another rank"
        assert len(self._heap) <= 2 * len(self._orders) + _SLACK, "too many dead entries"
