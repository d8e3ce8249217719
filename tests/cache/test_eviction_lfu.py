"""LFU with aging: exact order on few pages; each prompt is one full page and one token more."""

from anaphora.cache.eviction.lfu import LFU
from anaphora.cache.page import Page
from anaphora.ids import PageId


def page(page_id: int, hits: int = 0) -> Page:
    """Return a page that was hit so often."""
    made = Page(PageId(page_id))
    made.num_hits = hits
    return made


def order(policy: LFU) -> list[int]:
    """Return the ids, the next victim first."""
    policy.check_invariants()
    return [page.page_id for page in policy]


def add(policy: LFU, *pages: Page) -> None:
    """Hand pages over."""
    policy.add(pages, pages)


def test_the_least_often_hit_goes_first_and_of_equals_the_least_recent() -> None:
    policy = LFU()
    add(policy, page(1, hits=2), page(2), page(3, hits=1))
    add(policy, page(4), page(5, hits=1))
    assert order(policy) == [2, 4, 3, 5, 1]


def test_a_page_leaves_from_the_middle_of_its_bucket() -> None:
    policy = LFU()
    pages = [page(1), page(2), page(3)]
    add(policy, *pages)
    policy.remove(pages[1])
    assert (order(policy), len(policy)) == ([1, 3], 2)


def test_hits_are_counted_where_a_page_was_found() -> None:
    policy = LFU()
    pages = [page(1), page(2)]
    policy.hit(pages[:1])
    add(policy, *pages)
    assert order(policy) == [2, 1]


def test_old_popularity_is_overtaken() -> None:
    """Page 1 has three hits, so three generations of unhit pages go before it, and the fourth does not."""
    policy = LFU()
    add(policy, page(1, hits=3))
    survived = 0
    for number in range(2, 20):
        add(policy, page(number))
        if policy.take(1)[0].page_id == 1:
            break
        survived += 1
    assert survived == 3


def test_hits_beyond_the_limit_do_not_count() -> None:
    """A page with a thousand hits is released before one with four, and goes before it."""
    policy = LFU()
    add(policy, page(1, hits=1000), page(2, hits=4), page(3, hits=3))
    assert order(policy) == [3, 1, 2]


def test_several_buckets_are_taken_from_in_one_call() -> None:
    policy = LFU()
    add(policy, page(1, hits=4), page(2), page(3, hits=2))
    assert [taken.page_id for taken in policy.take(3)] == [2, 3, 1]
    add(policy, page(4, hits=4), page(5))
    assert (order(policy), len(policy)) == ([5, 4], 2)
