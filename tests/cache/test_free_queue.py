"""The intrusive list: order, counts, and leaving from the middle (case 51)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.free_queue import FreeQueue
from anaphora.cache.page import Page
from anaphora.ids import PageId


def pages(*page_ids: int) -> list[Page]:
    """Return new pages with these ids."""
    return [Page(PageId(page_id)) for page_id in page_ids]


def ids(queue: FreeQueue) -> list[int]:
    """Return the ids from the front."""
    return [page.page_id for page in queue]


def test_appended_pages_stand_behind_and_prepended_before() -> None:
    """[3, 4] then 1 and 2 in front, then 5 behind."""
    queue = FreeQueue(pages(3, 4))
    queue.prepend_all(pages(1, 2))
    queue.append_all(pages(5))
    assert (ids(queue), len(queue)) == ([1, 2, 3, 4, 5], 5)


def test_take_removes_from_the_front() -> None:
    """Two of three."""
    queue = FreeQueue(pages(1, 2, 3))
    taken = queue.take(2)
    assert ([page.page_id for page in taken], ids(queue), len(queue)) == ([1, 2], [3], 1)
    assert all(page.next is None and page.previous is None for page in taken)


def test_a_page_leaves_from_the_middle() -> None:
    """Its neighbours close up."""
    first, middle, last = pages(1, 2, 3)
    queue = FreeQueue([first, middle, last])
    queue.remove(middle)
    assert (ids(queue), len(queue)) == ([1, 3], 2)


def test_taking_more_than_there_is_is_our_mistake() -> None:
    """An assertion names both numbers."""
    with pytest.raises(AssertionError, match="2 pages wanted of 1"):
        FreeQueue(pages(1)).take(2)


def test_removing_a_page_that_is_in_no_queue_is_our_mistake() -> None:
    """Twice, for example."""
    page = Page(PageId(1))
    queue = FreeQueue([page])
    queue.remove(page)
    with pytest.raises(AssertionError, match="in no queue"):
        queue.remove(page)


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "prepend", "take", "remove"]), st.integers(0, 5)), max_size=40
    )
)
def test_the_queue_behaves_like_a_list(steps: list[tuple[str, int]]) -> None:
    """A list of pages is the naive twin."""
    queue, next_id = FreeQueue(), 1
    twin: list[Page] = []
    for verb, number in steps:
        if verb in ("append", "prepend"):
            fresh = pages(*range(next_id, next_id + number))
            next_id += number
            (queue.append_all if verb == "append" else queue.prepend_all)(fresh)
            twin = [*twin, *fresh] if verb == "append" else [*fresh, *twin]
        elif verb == "take":
            count = min(number, len(twin))
            assert queue.take(count) == twin[:count]
            twin = twin[count:]
        elif twin:
            queue.remove(twin.pop(number % len(twin)))
        assert list(queue) == twin
        assert len(queue) == len(twin)
