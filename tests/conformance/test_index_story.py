"""Cases 13, 31, 32 and 47 of the conformance table: what is in the index, and what is told when it changes."""

import pytest

from anaphora.cache.page import Block, Page
from anaphora.cache.prefix_index import PrefixIndex
from anaphora.ids import PageId, RequestId
from tests.conformance.story import CacheStory, numbers


def test_case_13_a_prompt_of_fourteen_tokens_has_three_digests_which_enter_as_they_are_written() -> None:
    """Blocks of 4: the chunk that ends at 8 brings two, the one that ends at 14 the third."""
    story, request_id, tokens = CacheStory(11, 4), RequestId("R"), numbers(0, 14)
    chain = story.chain(tokens)
    assert len(chain.digests) == 3
    story.manager.open(request_id, chain)
    assert story.manager.admit(request_id, story.manager.lookup(chain, 14, 14), 8, 14)
    sizes = []
    for end in (8, 14):
        assert story.manager.grow(request_id, end) is not None
        story.manager.commit(request_id, tokens, end, is_decode=False)
        sizes.append(len(story.manager.pool.index))
    assert sizes == [2, 3]


def test_case_31_a_second_copy_comes_and_goes_without_a_word() -> None:
    """Three pages: the copy on page 2 is taken first and told to nobody; with page 1 the digest goes, once."""
    story, tokens = CacheStory(4), numbers(0, 16)
    story.admit("A", tokens)
    copy = story.admit("B", tokens, skip_reading=True)
    assert copy and copy.pages == [2]
    assert story.indexed() == {1: [0]}
    story.free("B")
    assert story.order == [2, 3]
    other = story.admit("C", numbers(100, 16))
    assert other and other.pages == [2]
    assert story.log.entries == [("published", [0]), ("published", [0])]
    assert story.hit([*tokens, 7]) == 16
    story.free("A")
    last = story.admit("D", numbers(200, 32))
    assert last and last.pages == [3, 1]
    assert story.log.entries[2:] == [("evicted", (1, 1)), ("published", [0, 1])]
    assert story.hit([*tokens, 7]) == 0


def test_case_32_a_block_that_is_not_the_indexed_one_takes_nothing_out_of_the_index() -> None:
    """Two blocks with one digest on two pages; only the first is indexed."""
    story = CacheStory(3)
    story.admit("A", numbers(0, 16))
    (indexed,) = story.manager.pool.index
    other = Block(
        indexed.digest,
        indexed.parent,
        Page(PageId(2)),
        indexed.slot,
        indexed.content,
        indexed.namespace,
        is_decode_written=False,
    )
    index: PrefixIndex = story.manager.pool.index
    version = index.version
    assert not index.remove(other)
    assert (index.get(indexed.digest), index.version) == (indexed, version)
    assert index.remove(indexed)
    assert index.get(indexed.digest) is None


@pytest.mark.parametrize("num_blocks", range(2, 11))
def test_case_47_one_publication_for_a_prompt_one_removal_for_each_page_and_the_clearing_last(
    num_blocks: int,
) -> None:
    """Prompts of two to ten blocks that fill the pool one after another."""
    story = CacheStory(num_blocks + 1)
    for turn in range(2):
        story.admit(f"R{turn}", numbers(1000 * turn, 16 * num_blocks))
        story.free(f"R{turn}")
    story.manager.reset()
    published = ("published", list(range(num_blocks)))
    removals = [("evicted", (page, 1)) for page in range(num_blocks, 0, -1)]
    assert story.log.entries == [published, *removals, published, ("cleared", None)]
