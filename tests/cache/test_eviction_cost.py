"""Cost × likelihood: exact order on few pages of 4,096 tokens, so that a depth of 8 costs twice as much as one of 0."""

import pytest

from anaphora.cache.eviction.cost import BREAK_EVEN_TOKENS, CostAware
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Block, Page
from anaphora.ids import PageId

PAGE_SIZE = 4096
assert BREAK_EVEN_TOKENS == 8 * PAGE_SIZE


def page(page_id: int, depth: int = 0, hits: int = 0) -> Page:
    """Return a page with a digest."""
    made = Page(PageId(page_id))
    made.depth, made.num_hits = depth, hits
    made.blocks.append(
        Block(BlockDigest(b"%d" % page_id), BlockDigest(b""), made, 0, b"", b"", is_decode_written=False)
    )
    return made


def order(policy: CostAware) -> list[int]:
    """Return the ids, the next victim first."""
    policy.check_invariants()
    return [page.page_id for page in policy]


def add(policy: CostAware, *pages: Page) -> None:
    """Hand pages over together."""
    policy.add(pages, pages)


def test_a_page_deep_in_its_chain_costs_more_and_stays_longer() -> None:
    """Neither was hit, and the deep one is older."""
    policy = CostAware(PAGE_SIZE)
    add(policy, page(1, depth=5))
    add(policy, page(2, depth=4))
    assert order(policy) == [2, 1]


def test_a_hit_weighs_as_much_as_twice_the_cost() -> None:
    """(8 + 0) · 2 against (8 + 7) · 1 and (8 + 9) · 1."""
    policy = CostAware(PAGE_SIZE)
    for made in (page(1, depth=0, hits=1), page(2, depth=7), page(3, depth=9)):
        add(policy, made)
    assert order(policy) == [2, 1, 3]


def test_a_parent_is_raised_to_its_dearest_child() -> None:
    """Handed over at once, deepest first: cheaper parents go later all the same."""
    policy = CostAware(PAGE_SIZE)
    add(policy, page(3, depth=2), page(2, depth=1), page(1, depth=0))
    add(policy, page(4, depth=1))
    assert order(policy) == [4, 3, 2, 1]


def test_a_parent_that_another_request_still_holds_is_raised_too() -> None:
    """Page 1 is handed over with page 3, stays referenced, and comes idle later with a shallow child."""
    policy = CostAware(PAGE_SIZE)
    parent, deep, shallow = page(1, depth=0), page(3, depth=9), page(2, depth=1)
    policy.add([deep], [deep, parent])
    add(policy, shallow, parent)
    assert order(policy) == [2, 3, 1]


def test_another_chain_in_the_same_hand_over_is_not_raised() -> None:
    """Page 9 is the source of a copy, handed over before the chain [2, 1], which is cheaper."""
    policy = CostAware(PAGE_SIZE)
    add(policy, page(9, depth=1, hits=3), page(2, depth=1), page(1, depth=0))
    assert order(policy) == [2, 1, 9]


def test_old_value_is_overtaken() -> None:
    """Three hits are worth four generations of pages at depth 0; of equal ranks the older one goes."""
    policy = CostAware(PAGE_SIZE)
    add(policy, page(1, hits=3))
    taken = []
    for number in range(2, 7):
        add(policy, page(number))
        taken += [victim.page_id for victim in policy.take(1)]
    assert taken == [2, 3, 4, 1, 5]


def test_dead_entries_are_swept() -> None:
    """A page is hit a thousand times while another stays: the heap stays small, and the order right."""
    policy = CostAware(PAGE_SIZE)
    busy, quiet = page(1), page(2)
    add(policy, quiet)
    for _ in range(1000):
        add(policy, busy)
        policy.remove(busy)
        policy.check_invariants()
    add(policy, busy)
    assert order(policy) == [2, 1]


def test_removing_a_page_that_is_not_there_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        CostAware(PAGE_SIZE).remove(page(1))
