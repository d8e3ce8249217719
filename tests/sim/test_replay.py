import pytest

from anaphora.config import KVLayout
from anaphora.errors import ContextLengthError
from anaphora.ids import TokenId
from anaphora.sim.replay import ReplayedCache

LAYOUT = KVLayout(block_size=2, page_size=4, num_pages=5, min_prefill_tokens=2)


def ids(*numbers: int) -> list[TokenId]:
    return [TokenId(number) for number in numbers]


def test_a_prompt_finds_the_whole_blocks_of_earlier_ones() -> None:
    cache = ReplayedCache(LAYOUT)
    assert [cache.add(ids(1, 2, 3, 4, 5)), cache.add(ids(1, 2, 3, 4, 6, 7)), cache.add(ids(1, 2, 9, 9))] == [
        0,
        4,
        2,
    ]


def test_what_was_evicted_is_not_found() -> None:
    cache = ReplayedCache(LAYOUT)
    cache.add(ids(*range(8)))
    cache.add(ids(*range(20, 36)))
    assert cache.add(ids(*range(8))) == 0


def test_another_salt_is_another_namespace() -> None:
    cache = ReplayedCache(LAYOUT)
    cache.add(ids(1, 2, 3, 4, 5, 6))
    assert cache.add(ids(1, 2, 3, 4, 5, 6), cache_salt="a") == 0


def test_a_prompt_larger_than_the_pool_is_refused() -> None:
    with pytest.raises(ContextLengthError, match="17 tokens, but the cache holds 16"):
        ReplayedCache(LAYOUT).add(ids(*range(17)))


def test_all_pages_are_free_between_prompts() -> None:
    cache = ReplayedCache(LAYOUT)
    cache.add(ids(1, 2, 3, 4, 5))
    assert cache.manager.pool.usage().used == 0
    cache.manager.check_invariants()
