"""Pins: kept until their time, within a share, and never silently refused."""

import pytest

from anaphora.cache.page import Page
from anaphora.cache.pins import Pins, pinnable_pages
from anaphora.config import KVLayout
from anaphora.ids import PageId
from tests.conformance.story import CacheStory, numbers


def cached(num_pages: int = 9, max_pinned_pages: int = 4) -> CacheStory:
    """Return a cache with blocks of 4 in which the prompt 0..16 has come and gone: pages 1 to 4 are cached."""
    story = CacheStory(num_pages, 4, max_pinned_pages=max_pinned_pages)
    story.admit("A", numbers(0, 17))
    story.free("A")
    return story


def page(page_id: int, depth: int = 0) -> Page:
    """Return a page at that place in its chain."""
    made = Page(PageId(page_id))
    made.depth = depth
    return made


def ids(pages: list[Page]) -> list[int]:
    """Return their ids."""
    return [page.page_id for page in pages]


# Times.


def test_a_pin_lapses_when_its_time_has_come_and_not_before() -> None:
    pins, one = Pins(), page(1)
    pins.add([one], until=10.0)
    assert pins.lapse(9.9) == [] and one in pins
    assert pins.lapse(10.0) == [one] and one not in pins
    assert pins.lapse(11.0) == []


def test_the_latest_of_several_times_counts() -> None:
    pins, one = Pins(), page(1)
    for until in (10.0, 20.0, 15.0):
        pins.add([one], until)
    assert (pins.lapse(19.0), len(pins)) == ([], 1)
    assert pins.lapse(20.0) == [one]


def test_pages_lapse_deepest_first_and_of_equals_the_first_pinned() -> None:
    """Also when their times differ and some were extended."""
    pins = Pins()
    first, second = [page(1, 0), page(2, 1)], [page(3, 0), page(4, 1), page(5, 2)]
    pins.add(first, until=5.0)
    pins.add(second, until=3.0)
    pins.add(second[:1], until=6.0)
    assert ids(pins.lapse(7.0)) == [5, 2, 4, 1, 3]


def test_a_page_pinned_again_and_again_is_noted_once() -> None:
    pins, one = Pins(), page(1)
    for until in range(100):
        pins.add([one], float(until))
    assert (len(pins), len(pins._due)) == (1, 1)


# In the pool.


def test_a_pinned_page_is_neither_free_nor_evicted() -> None:
    """Pages 1 and 2 are pinned; a prompt that needs all the rest takes everything but them."""
    story = cached()
    assert story.pin(numbers(0, 8), until=10.0) == 8
    assert story.order == [5, 6, 7, 8, 4, 3]
    assert story.manager.pool.num_free_pages == 6
    assert story.usage == (0, 4, 4)
    admitted = story.admit("B", numbers(100, 24))
    assert admitted and admitted.pages == [5, 6, 7, 8, 4, 3]
    assert story.usage == (6, 2, 0)
    assert story.hit(numbers(0, 17)) == 8
    assert story.admit("C", numbers(200, 4)) is None


def test_a_pinned_page_that_is_hit_counts_as_used_and_needs_no_free_page() -> None:
    """Six free pages, two pinned hits: a prompt of eight pages fits."""
    story = cached()
    story.pin(numbers(0, 8), until=10.0)
    admitted = story.admit("B", [*numbers(0, 8), *numbers(100, 24)])
    assert admitted and (admitted.hit, admitted.pages) == (8, [1, 2, 5, 6, 7, 8, 4, 3])
    assert story.usage == (8, 0, 0)
    story.free("B")
    assert story.usage == (0, 8, 0)
    assert story.order == [3, 4, 8, 7, 6, 5]


def test_lapsed_pages_return_as_if_just_released() -> None:
    """B came after A, but A's pin lapses last."""
    story = cached()
    story.pin(numbers(0, 12), until=10.0)
    story.admit("B", numbers(100, 16))
    story.free("B")
    assert story.lapse(9.0) == 0
    assert story.order == [4, 8, 7, 6, 5]
    assert story.lapse(10.0) == 3
    assert story.order == [4, 8, 7, 6, 5, 3, 2, 1]


def test_a_pin_that_lapses_while_a_request_holds_the_page_waits_for_nobody() -> None:
    story = cached()
    story.pin(numbers(0, 8), until=10.0)
    story.admit("B", numbers(0, 17))
    assert story.lapse(10.0) == 2
    assert story.usage == (5, 0, 3)
    story.free("B")
    assert story.order == [5, 6, 7, 8, 4, 3, 2, 1]


def test_a_running_request_can_pin_what_it_has_published() -> None:
    """Its pages are not idle when it ends."""
    story = CacheStory(9, 4, max_pinned_pages=4)
    story.admit("A", numbers(0, 17))
    assert story.pin(numbers(0, 8), until=10.0) == 8
    story.free("A")
    assert story.order == [5, 6, 7, 8, 4, 3]


def test_only_what_is_cached_from_the_beginning_on_is_pinned() -> None:
    """The prompt's fifth page was never full, and a stranger's prompt is not there at all."""
    story = cached()
    assert story.pin(numbers(0, 19), until=10.0) == 16
    assert story.pin(numbers(500, 8), until=10.0) == 0
    assert story.manager.pool.num_pinned_pages == 4


def test_nothing_is_pinned_without_caching() -> None:
    story = CacheStory(9, 4, caching=False, max_pinned_pages=4)
    story.admit("A", numbers(0, 17))
    assert story.pin(numbers(0, 16), until=10.0) == 0


# The limit.


def test_a_pin_over_the_limit_is_refused_and_told_and_changes_nothing() -> None:
    """Three of four pages are allowed."""
    story = cached(max_pinned_pages=3)
    assert story.pin(numbers(0, 8), until=10.0) == 8
    order = story.order
    assert story.pin(numbers(0, 16), until=20.0) is None
    assert story.order == order
    assert story.log.entries[-1] == ("pin refused", 2)
    # Not even the part that was pinned already is kept longer.
    assert story.lapse(10.0) == 2


def test_pinning_the_same_again_is_granted_at_the_limit() -> None:
    story = cached(max_pinned_pages=4)
    assert story.pin(numbers(0, 16), until=10.0) == 16
    assert story.pin(numbers(0, 16), until=20.0) == 16
    assert (story.lapse(10.0), story.lapse(20.0)) == (0, 4)


def test_a_cache_without_a_share_pins_nothing() -> None:
    assert cached(max_pinned_pages=0).pin(numbers(0, 4), until=10.0) is None


@pytest.mark.parametrize(
    "share, max_model_len, pinnable",
    [
        (0.25, 16, 2),  # a quarter of ten pages
        (1.0, 16, 6),  # four pages stay for one request of full length
        (1.0, 17, 5),
        (0.25, 36, 1),  # lowered: nine pages are needed
        (0.25, 40, 0),
        (0.0, 16, 0),
        (0.25, 400, 0),  # the scheduler refuses this pool anyway
    ],
)
def test_what_one_request_of_full_length_needs_is_never_pinnable(
    share: float, max_model_len: int, pinnable: int
) -> None:
    """Ten usable pages of 4 tokens."""
    assert pinnable_pages(KVLayout(4, 4, 11), share, max_model_len) == pinnable


# What else happens to pages.


def test_a_reset_clears_pins_too() -> None:
    story = cached()
    story.pin(numbers(0, 8), until=10.0)
    assert story.manager.reset()
    assert story.usage == (0, 0, 8)
    assert story.manager.pool.num_pinned_pages == 0
    assert story.lapse(10.0) == 0


def test_a_refused_reset_leaves_the_pins() -> None:
    story = cached()
    story.pin(numbers(0, 8), until=10.0)
    story.admit("B", numbers(100, 4))
    assert not story.manager.reset()
    assert story.manager.pool.num_pinned_pages == 2


def test_a_pinned_page_keeps_its_digests_when_a_fuller_page_comes() -> None:
    """Pages of two blocks: without the pin, B's page 3 would take over block 2 from A's page 2."""
    story = CacheStory(11, 4, 8, max_pinned_pages=2)
    story.admit("A", numbers(0, 13))
    assert story.pin(numbers(0, 12), until=10.0) == 12
    story.admit("B", numbers(0, 17))
    assert story.indexed() == {1: [0, 1], 2: [0], 3: [1]}
    story.free("A")
    story.free("B")
    # The whole page is found by its last block, and so is the pinned part of it.
    assert story.hit(numbers(0, 17)) == 16
    story.admit("C", numbers(500, 64))
    assert story.hit(numbers(0, 17)) == 12
