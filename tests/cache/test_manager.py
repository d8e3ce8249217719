"""Lookup where pages remember which page was written behind them: that may be stale, the answer may not."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import pack_tokens
from anaphora.cache.extras import BlockExtras
from anaphora.cache.hashing import BlockDigest
from tests.conformance.story import CacheStory, numbers

COMMON, LEFT, RIGHT = numbers(0, 4), numbers(100, 4), numbers(200, 4)
END = [99]


def test_both_continuations_of_a_prefix_are_found_whichever_was_written_last() -> None:
    """Block 4; LEFT's page was behind COMMON's until RIGHT's took that place."""
    story = CacheStory(num_pages=8, block_size=4)
    story.admit("left", COMMON + LEFT)
    story.admit("right", COMMON + RIGHT)
    assert story.pages("left") == [1, 2]
    assert story.pages("right") == [1, 3]
    assert story.hit(COMMON + LEFT + END) == 8
    assert story.hit(COMMON + RIGHT + END) == 8


def test_a_page_that_was_given_away_is_not_taken_for_what_it_held() -> None:
    """Page 2 stood behind page 1 as LEFT, and holds another prompt's first block now."""
    story = CacheStory(num_pages=3, block_size=4)
    story.admit("first", COMMON + LEFT)
    story.free("first")
    story.admit("other", RIGHT)
    assert story.pages("other") == [2]
    assert story.hit(COMMON + LEFT + END) == 4
    assert story.hit(COMMON + RIGHT + END) == 4
    assert story.hit(RIGHT + END) == 4


def test_a_page_behind_that_lost_its_blocks_is_passed_over() -> None:
    """Page 2 stood behind page 1 and was taken, but nothing is published in it yet."""
    story = CacheStory(num_pages=3, block_size=4)
    story.admit("first", COMMON + LEFT)
    story.free("first")
    story.admit("short", RIGHT[:2])
    assert story.pages("short") == [2]
    assert story.hit(COMMON + LEFT + END) == 4


def test_large_pages_find_both_continuations_too() -> None:
    """Two blocks of 4 to a page: pages are told apart by their last block."""
    story = CacheStory(num_pages=8, block_size=4, page_size=8)
    common = numbers(0, 8)
    story.admit("left", common + numbers(100, 8))
    story.admit("right", common + numbers(200, 8))
    assert story.hit(common + numbers(100, 8) + END) == 16
    assert story.hit(common + numbers(200, 8) + END) == 16


def test_digests_that_a_lookup_took_from_pages_are_those_that_hashing_gives() -> None:
    """Two blocks of 4 to a page, and a page that holds its second block only, since another holds the first.

    A lookup takes the digests behind that page from the pages; counted by pages they would be off by one.
    """
    story = CacheStory(num_pages=8, block_size=4, page_size=8)
    tokens = COMMON + LEFT + numbers(300, 16)
    story.admit("other", COMMON + RIGHT)
    story.admit("first", tokens)
    assert story.indexed() == {1: [0, 1], 2: [1], 3: [0, 1], 4: [0, 1]}
    chain = story.chain(tokens + END)
    assert story.manager.lookup(chain, 25, 25).cached_tokens == 24
    assert chain.digests == story.chain(tokens + END).digests


def test_digests_are_the_same_when_a_lookup_is_asked_again_after_more_was_published() -> None:
    """The second lookup finds one page that the first had hashed for itself, and another that it had not."""
    story = CacheStory(num_pages=8, block_size=4)
    tokens = numbers(0, 16)
    story.admit("first", tokens[:4])
    chain = story.chain(tokens + END)
    assert story.manager.lookup(chain, 17, 17).cached_tokens == 4
    story.admit("second", tokens)
    assert story.manager.lookup(chain, 17, 17).cached_tokens == 16
    assert chain.digests == story.chain(tokens + END).digests


def test_a_lookup_hashes_no_block_that_is_cached_behind_the_first() -> None:
    """The first block is found by its digest, the others behind it by parent and content."""
    story = CacheStory(num_pages=8, block_size=4)
    tokens = numbers(0, 16)
    story.admit("first", tokens)
    chain = story.chain(tokens + END)
    hashed: list[bytes] = []

    class Watched:
        root = chain.root

        def digests(
            self,
            parent: BlockDigest,
            first: int,
            contents: Sequence[bytes],
            extras: Mapping[int, BlockExtras],
        ) -> list[BlockDigest]:
            hashed.extend(contents)
            return real.digests(parent, first, contents, extras)

    real, chain._hasher = chain._hasher, Watched()
    assert story.manager.lookup(chain, 17, 17).cached_tokens == 16
    assert hashed == [pack_tokens(tokens[:4])]
    assert chain.num_known_digests == 4


@pytest.mark.parametrize("page_size", [2, 4, 6])
@given(prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=13), max_size=12))
def test_whatever_was_admitted_before_a_lookup_leaves_the_digests_that_hashing_gives(
    page_size: int, prompts: list[list[int]]
) -> None:
    """Blocks of 2 over two tokens and few pages: prefixes fork, pages are given away, blocks move."""
    story = CacheStory(num_pages=10, block_size=2, page_size=page_size)
    live: list[str] = []
    for number, tokens in enumerate(prompts):
        chain = story.chain(tokens)
        story.manager.lookup(chain, len(tokens), len(tokens))
        assert chain.digests == story.chain(tokens).digests
        while not story.admit(str(number), tokens):
            story.free(live.pop(0))
        live.append(str(number))
