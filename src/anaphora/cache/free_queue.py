"""Pages nobody refers to, in the order in which they will be taken.

An intrusive doubly linked list: a page in the middle leaves in O(1) when a request hits it, which a deque
cannot do.
"""

from collections.abc import Iterable, Iterator, Sequence

from anaphora.cache.page import Page
from anaphora.ids import NULL_PAGE


class FreeQueue:
    """A queue of idle pages; the front is taken first."""

    __slots__ = ("_end", "_length")

    def __init__(self, pages: Iterable[Page] = ()) -> None:
        # One sentinel closes the list into a ring: no end is a special case.
        self._end = Page(NULL_PAGE)
        self._end.previous = self._end.next = self._end
        self._length = 0
        self.append_all(pages)

    def __len__(self) -> int:
        """Return the number of pages."""
        return self._length

    def __iter__(self) -> Iterator[Page]:
        """Yield the pages from the front."""
        page = self._end.next
        while page is not None and page is not self._end:
            yield page
            page = page.next

    def append_all(self, pages: Iterable[Page]) -> None:
        """Put pages at the tail, the first of them nearest the front."""
        self._insert(self._end.previous, pages)

    def prepend_all(self, pages: Iterable[Page]) -> None:
        """Put pages at the front, the first of them foremost."""
        self._insert(self._end, pages)

    def _insert(self, before: Page | None, pages: Iterable[Page]) -> None:
        assert before is not None, "a ring has no open end"
        after, added = before.next, 0
        assert after is not None, "a ring has no open end"
        for page in pages:
            before.next = page
            page.previous = before
            before = page
            added += 1
        before.next = after
        after.previous = before
        self._length += added

    def take(self, num_pages: int) -> list[Page]:
        """Remove and return that many pages from the front; the caller has checked that they are there."""
        assert 0 <= num_pages <= self._length, f"{num_pages} pages wanted of {self._length}"
        taken, page = [], self._end.next
        for _ in range(num_pages):
            assert page is not None, "the list is shorter than its length"
            taken.append(page)
            following = page.next
            page.previous = page.next = None
            page = following
        assert page is not None, "the ring is broken"
        self._end.next = page
        page.previous = self._end
        self._length -= num_pages
        return taken

    def remove(self, page: Page) -> None:
        """Take one page out of the middle in O(1)."""
        self.remove_all([page])

    def remove_all(self, pages: Sequence[Page]) -> None:
        """Take pages out of the middle, in O(1) each."""
        for page in pages:
            previous, following = page.previous, page.next
            assert previous is not None, f"{page} is in no queue"
            assert following is not None, f"{page} is in half a queue"
            previous.next = following
            following.previous = previous
            page.previous = page.next = None
        self._length -= len(pages)
