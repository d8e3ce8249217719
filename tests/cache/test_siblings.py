"""Finding the page that begins most like what comes next."""

from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import pack_tokens
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Block, Page
from anaphora.cache.siblings import Siblings, common_tokens
from anaphora.ids import PageId

PARENT = BlockDigest(b"parent")


def block(tokens: list[int], parent: BlockDigest = PARENT) -> Block:
    """Return an indexed block with these tokens."""
    return Block(
        BlockDigest(b""), parent, Page(PageId(1)), 0, pack_tokens(tokens), b"", is_decode_written=False
    )


TOKENS = st.lists(st.sampled_from([0, 1, 256, 2**32 - 1]), max_size=6)


@given(TOKENS, TOKENS)
def test_common_tokens_counts_whole_equal_tokens(one: list[int], other: list[int]) -> None:
    """Whatever bytes the differing tokens share."""
    expected = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    assert common_tokens(pack_tokens(one), pack_tokens(other)) == expected


@given(
    st.lists(st.lists(st.sampled_from([0, 1, 256]), min_size=4, max_size=4), max_size=12),
    st.lists(st.sampled_from([0, 1, 256]), max_size=4),
    st.data(),
)
def test_the_best_sibling_is_as_good_as_any(
    contents: list[list[int]], query: list[int], data: st.DataObject
) -> None:
    """Against a search through all of them, after some have left."""
    siblings, blocks = Siblings(), [block(tokens) for tokens in contents]
    for one in blocks:
        siblings.add(one)
    for one in list(blocks):
        if data.draw(st.booleans()):
            siblings.remove(one)
            blocks.remove(one)
    packed = pack_tokens(query)
    most = max((common_tokens(one.content, packed) for one in blocks), default=0)
    match = siblings.best(PARENT, packed)
    assert (match.num_tokens if match else 0) == most
    assert match is None or match.block in blocks


def test_other_prefixes_have_other_siblings() -> None:
    """The same tokens behind another parent are no match."""
    siblings = Siblings()
    siblings.add(block([1, 2], BlockDigest(b"other")))
    assert siblings.best(PARENT, pack_tokens([1, 2])) is None


def test_nothing_is_left_behind() -> None:
    """All that was added and removed, or cleared."""
    siblings = Siblings()
    ones = [block([1, 2]), block([1, 2]), block([3, 4])]
    for one in ones:
        siblings.add(one)
    for one in ones:
        siblings.remove(one)
    assert siblings.best(PARENT, pack_tokens([1])) is None
    siblings.add(ones[0])
    siblings.clear()
    assert siblings.best(PARENT, pack_tokens([1])) is None
