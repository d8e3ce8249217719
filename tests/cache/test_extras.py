"""What blocks depend on besides tokens: asked for any range in any order, the answer is that of a plain search."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.extras import BlockExtras, MediaExtra, MediaItem, PromptEmbeds, PromptExtras
from tests.hash_twins import field, v1_media

ITEMS = st.lists(
    st.builds(
        MediaItem,
        identifier=st.sampled_from(["aaa", "bbb", "ccc"]),
        offset=st.integers(0, 30),
        num_tokens=st.integers(1, 12),
        is_client_given=st.booleans(),
    ),
    max_size=6,
)


@given(ITEMS, st.integers(0, 40), st.integers(1, 10))
def test_a_block_has_every_item_that_overlaps_it_and_no_other(
    items: list[MediaItem], start: int, size: int
) -> None:
    """The twin asks each token of each item whether it lies in the block."""
    block = range(start, start + size)
    expected = [
        MediaExtra(item.identifier, item.offset - start, item.is_client_given)
        for item in sorted(items, key=lambda item: item.offset)
        if any(token in block for token in range(item.offset, item.end))
    ]
    found = PromptExtras(items).of_block(start, start + size)
    assert found == (BlockExtras(tuple(expected)) if expected else None)


def test_an_item_that_ends_where_a_block_begins_is_not_in_it() -> None:
    """Nor one that begins where the block ends."""
    extras = PromptExtras([MediaItem(identifier="a", offset=4, num_tokens=4)])
    assert extras.of_block(0, 4) is None
    assert extras.of_block(4, 8) == BlockExtras((MediaExtra("a", 0),))
    assert extras.of_block(7, 9) == BlockExtras((MediaExtra("a", -3),))
    assert extras.of_block(8, 12) is None


def test_a_long_item_is_found_behind_a_short_one_that_began_later() -> None:
    """The ends of overlapping items do not ascend: a film of 20 tokens holds a sound of 2."""
    extras = PromptExtras(
        [
            MediaItem(identifier="film", offset=0, num_tokens=20),
            MediaItem(identifier="sound", offset=2, num_tokens=2),
        ]
    )
    assert extras.of_block(2, 4) == BlockExtras((MediaExtra("film", -2), MediaExtra("sound", 0)))
    assert extras.of_block(4, 8) == BlockExtras((MediaExtra("film", -4),))
    assert extras.of_block(8, 12) == BlockExtras((MediaExtra("film", -8),))


def test_two_images_that_arrive_at_once_are_both_found_whatever_was_asked_before() -> None:
    """A walk that begins at the item where the last one ended would give the first block the second image only."""
    extras = PromptExtras(
        [
            MediaItem(identifier="one", offset=0, num_tokens=4),
            MediaItem(identifier="two", offset=4, num_tokens=4),
        ]
    )
    assert extras.of_block(4, 8) == BlockExtras((MediaExtra("two", 0),))
    assert extras.of_block(0, 4) == BlockExtras((MediaExtra("one", 0),))


def test_items_may_be_given_in_any_order() -> None:
    """They count in prompt order."""
    first = MediaItem(identifier="a", offset=0, num_tokens=1)
    second = MediaItem(identifier="b", offset=1, num_tokens=1)
    expected = BlockExtras((MediaExtra("a", 0), MediaExtra("b", 1)))
    assert PromptExtras([first, second]).of_block(0, 4) == expected
    assert PromptExtras([second, first]).of_block(0, 4) == expected


def test_media_and_embeddings_become_the_fields_12_and_13() -> None:
    """In that order, the media in prompt order."""
    extras = BlockExtras((MediaExtra("aaa", -5), MediaExtra("x", 2**40, is_client_given=True)), b"e" * 32)
    assert extras.encode() == b"".join(
        field(*item)
        for item in [v1_media("aaa", -5), v1_media("x", 2**40, is_client_given=True), (0x13, b"e" * 32)]
    )
    assert BlockExtras().encode() == b""


def test_a_client_given_id_differs_from_a_content_digest() -> None:
    """The same text, one chosen by the client."""
    assert MediaExtra("aaa", 0).encode() != MediaExtra("aaa", 0, is_client_given=True).encode()


EXTRAS = st.builds(
    BlockExtras,
    st.lists(
        st.builds(MediaExtra, st.text(max_size=3), st.integers(-(2**63), 2**63 - 1), st.booleans()),
        max_size=2,
    ).map(tuple),
    st.none() | st.binary(max_size=3),
)


@given(EXTRAS, EXTRAS)
def test_two_extras_have_the_same_encoding_only_if_they_are_equal(
    one: BlockExtras, other: BlockExtras
) -> None:
    """Identifiers cannot slide into offsets, items into items, or media into embeddings."""
    assert (one.encode() == other.encode()) == (one == other)


def test_the_digest_of_embeddings_is_over_the_rows_of_the_block() -> None:
    """Four rows of two bytes; behind the last there are none."""
    embeds = PromptEmbeds(b"AaBbCcDd", 2)
    assert embeds.digest(1, 3) == hashlib.sha256(b"BbCc").digest()
    assert embeds.digest(2, 6) == hashlib.sha256(b"CcDd").digest()
    assert embeds.digest(4, 6) == hashlib.sha256(b"").digest()


def test_every_block_of_embeddings_has_a_digest_with_or_without_media() -> None:
    """Also the blocks of the outputs."""
    embeds = PromptEmbeds(b"AaBb", 2)
    extras = PromptExtras([MediaItem(identifier="a", offset=0, num_tokens=1)], embeds)
    assert extras.of_block(0, 2) == BlockExtras((MediaExtra("a", 0),), hashlib.sha256(b"AaBb").digest())
    assert extras.of_block(2, 4) == BlockExtras((), hashlib.sha256(b"").digest())


def test_a_prompt_without_media_or_embeddings_has_no_extras() -> None:
    """None, not empty ones."""
    assert PromptExtras().of_block(0, 16) is None
