"""Belady's choice against every choice there is."""

from functools import cache
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.eviction.policies import make_policy
from anaphora.config import EVICTION_POLICIES
from anaphora.sim.belady import belady_hits, next_uses
from anaphora.sim.order import OrderReplay
from anaphora.sim.trace import num_leading
from tests.sim.traces import engine_trace, paths, public_trace


def best_hits(prompts: list[list[int]], num_blocks: int) -> int:
    """Return the most blocks that any choice of what to keep could find."""

    @cache
    def best(index: int, stored: frozenset[int]) -> int:
        if index == len(prompts):
            return 0
        here = sorted(stored | set(prompts[index]))
        size = min(num_blocks, len(here))
        kept = max(best(index + 1, frozenset(choice)) for choice in combinations(here, size))
        return num_leading(prompts[index], set(stored)) + kept

    return best(0, frozenset())


@given(paths(), st.integers(0, 4))
def test_no_choice_finds_more_blocks(prompts: list[list[int]], num_blocks: int) -> None:
    hits = belady_hits(public_trace(prompts, block_size=1), num_blocks)
    assert sum(hits) == best_hits(prompts, num_blocks)


@given(paths(most_nodes=9, most_prompts=12), st.integers(0, 3))
def test_no_policy_of_the_engine_finds_more(prompts: list[list[int]], more: int) -> None:
    trace = public_trace(prompts, block_size=1)
    num_pages = trace.num_pages_of_largest + more
    replay = OrderReplay(trace)
    most = sum(replay.belady(num_pages).hits.hit_tokens)
    for policy in EVICTION_POLICIES:
        assert make_policy(policy, trace.layout(num_pages)) is not None
        assert sum(replay.play(policy, num_pages).hits.hit_tokens) <= most


def test_the_block_that_is_needed_last_goes_first() -> None:
    """Two blocks of room for 0, 1 and 2: 0 comes back after 2."""
    trace = public_trace([[0], [1], [2], [1], [2], [0]])
    assert belady_hits(trace, 2) == [0, 0, 0, 4, 4, 0]


def test_of_several_the_deepest_goes_first() -> None:
    """What stands behind a lost block could not be found."""
    trace = public_trace([[0, 1, 2], [0, 1, 2]])
    assert belady_hits(trace, 2) == [0, 8]


def test_a_partly_filled_last_block_counts_with_its_true_length() -> None:
    trace = public_trace([[0, 1], [0, 1]], tails=[4, 3])
    assert belady_hits(trace, 2) == [0, 7]


def test_a_block_nobody_asks_for_again_takes_no_room() -> None:
    trace = public_trace([[0], [1], [2], [3], [0]])
    assert belady_hits(trace, 1) == [0, 0, 0, 0, 4]


def test_outputs_are_stored_but_ask_for_nothing() -> None:
    trace = public_trace([[0], [0, 1]])
    assert next_uses(trace) == [[1], [None, None]]


def test_the_engines_law_holds_for_the_bound_too() -> None:
    """Eight tokens in whole blocks of four: the last block is computed again."""
    trace = engine_trace([(8, [0, 1]), (8, [0, 1])], block_size=4, page_size=4)
    assert belady_hits(trace, 9) == [0, 4]
