"""The chain grows with its tokens and hashes nothing twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import BlockChain, UnhashedChain, pack_tokens, unpack_tokens
from anaphora.cache.extras import BlockExtras, MediaExtra, MediaItem, PromptEmbeds, PromptExtras
from anaphora.cache.hashing import HashAlgorithm, Namespace
from anaphora.ids import TokenId
from tests.hash_twins import ALGORITHMS

NAMESPACE = Namespace(model_fingerprint=b"m")


def image(identifier: str, offset: int, num_tokens: int) -> MediaItem:
    return MediaItem(identifier=identifier, offset=offset, num_tokens=num_tokens)


IMAGES = st.lists(st.builds(image, st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 9)), max_size=3)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
@given(pieces=st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), max_size=6), images=IMAGES)
def test_growing_in_pieces_gives_the_chain_of_the_whole(
    algorithm: HashAlgorithm, pieces: list[list[int]], images: list[MediaItem]
) -> None:
    """However the tokens arrive."""
    namespace, extras = Namespace(model_fingerprint=b"m", cache_salt="s"), PromptExtras(images)
    grown = BlockChain(namespace, 4, algorithm=algorithm, extras=extras)
    for piece in pieces:
        grown.extend(piece)
    tokens = [token for piece in pieces for token in piece]
    whole = BlockChain(namespace, 4, tokens, algorithm=algorithm, extras=extras)
    assert (grown.digests, grown.contents, grown.num_tokens) == (
        whole.digests,
        whole.contents,
        whole.num_tokens,
    )


def test_only_full_blocks_are_hashed() -> None:
    """Eleven tokens are two blocks of four."""
    chain = BlockChain(NAMESPACE, 4, range(11))
    assert (len(chain.digests), chain.num_tokens) == (2, 11)
    chain.extend([11])
    assert len(chain.digests) == 3


def test_a_digest_covers_everything_before_it() -> None:
    """Another first token changes every digest; another last token only the last."""
    one, two = BlockChain(NAMESPACE, 4, range(12)), BlockChain(NAMESPACE, 4, [99, *range(1, 12)])
    three = BlockChain(NAMESPACE, 4, [*range(11), 99])
    assert not set(one.digests) & set(two.digests)
    assert one.digests[:2] == three.digests[:2]
    assert one.digests[2] != three.digests[2]


def test_content_joins_the_blocks_asked_for() -> None:
    """Blocks 1 and 2 of three."""
    chain = BlockChain(NAMESPACE, 2, [1, 2, 3, 4, 5, 6])
    assert chain.content(1, 3) == pack_tokens([3, 4, 5, 6])
    assert chain.content(0, 1) == pack_tokens([1, 2])


def test_tokens_are_packed_little_endian() -> None:
    """Four bytes each."""
    assert pack_tokens([1, 256]) == b"\x01\x00\x00\x00\x00\x01\x00\x00"


def test_an_unhashed_chain_counts_and_hashes_nothing() -> None:
    """Caching is off."""
    chain = UnhashedChain(NAMESPACE, 2, [1, 2, 3])
    chain.extend([4])
    assert (chain.digests, chain.num_tokens) == ([], 4)


def test_the_default_algorithm_is_sha256() -> None:
    """And no other."""
    chains = {name: BlockChain(NAMESPACE, 2, [1, 2], algorithm=a).digests for name, a in ALGORITHMS.items()}
    assert BlockChain(NAMESPACE, 2, [1, 2]).digests == chains["sha256"]
    assert len({digests[0] for digests in chains.values()}) == 4


def test_an_image_changes_its_blocks_and_all_behind_but_none_before() -> None:
    """Three blocks of two tokens, the image in the second."""
    plain = BlockChain(NAMESPACE, 2, range(6))
    pictured = BlockChain(NAMESPACE, 2, range(6), extras=PromptExtras([image("a", 3, 1)]))
    assert plain.digests[0] == pictured.digests[0]
    assert not set(plain.digests[1:]) & set(pictured.digests)
    assert (plain.contents[0], plain.contents[2]) == (pictured.contents[0], pictured.contents[2])
    assert plain.contents[1] != pictured.contents[1]
    assert pictured.contents[1].startswith(plain.contents[1])


def test_the_extras_of_a_block_stand_sealed_behind_its_tokens() -> None:
    """Tokens, length and extras, zeros to a multiple of 4, the number of blocks, 1: block by block, and as a run."""
    chain = BlockChain(NAMESPACE, 1, [7, 8, 9], extras=PromptExtras([image("abc", 1, 1)]))
    extra = BlockExtras((MediaExtra("abc", 0),)).encode()
    assert len(extra) % 4 == 2
    body = len(extra).to_bytes(4, "little") + extra + b"\0\0"
    assert chain.contents == [
        pack_tokens([7]),
        pack_tokens([8]) + body + b"\x01\0\0\0\x01",
        pack_tokens([9]),
    ]
    run = pack_tokens([7, 8, 9]) + bytes(4) + body[:-2] + bytes(4) + b"\0\0" + b"\x03\0\0\0\x01"
    assert chain.content(0, 3) == run


def test_an_image_further_on_in_its_block_is_another_block() -> None:
    """Same image, same tokens, other offset."""
    one, two = (BlockChain(NAMESPACE, 4, [0] * 4, extras=PromptExtras([image("a", at, 1)])) for at in (1, 2))
    assert one.digests != two.digests
    assert one.contents != two.contents


def test_extras_of_outputs_are_found_when_the_chain_grows() -> None:
    """An image that reaches into the second block, which is completed later; embeddings in every block."""
    extras = PromptExtras([image("a", 1, 2)], PromptEmbeds(b"xyz", 1))
    grown = BlockChain(NAMESPACE, 2, [1, 2, 3], extras=extras)
    grown.extend([4, 5, 6])
    whole = BlockChain(NAMESPACE, 2, [1, 2, 3, 4, 5, 6], extras=extras)
    assert grown.digests == whole.digests
    assert grown.contents == whole.contents
    plain = BlockChain(NAMESPACE, 2, [1, 2, 3, 4, 5, 6])
    assert not set(grown.contents) & set(plain.contents)


RUNS = st.tuples(st.lists(st.sampled_from([0, 0x12, 0x2012, 0x13]), min_size=1, max_size=4), IMAGES)


@given(RUNS, RUNS)
def test_two_runs_have_the_same_content_only_if_tokens_and_extras_are_equal(
    one: tuple[list[int], list[MediaItem]], other: tuple[list[int], list[MediaItem]]
) -> None:
    """Also when tokens look like the fields of an image, and whatever block of a run the image is in."""

    def seen(run: tuple[list[int], list[MediaItem]]) -> tuple[bytes, object]:
        tokens, images = run
        extras = PromptExtras(images)
        chain = BlockChain(NAMESPACE, 1, tokens, extras=extras)
        blocks = range(len(tokens))
        return chain.content(0, len(tokens)), (tokens, [extras.of_block(at, at + 1) for at in blocks])

    (content, parts), (other_content, other_parts) = seen(one), seen(other)
    assert (content == other_content) == (parts == other_parts)


def test_the_content_of_a_run_without_extras_is_its_tokens_alone() -> None:
    """In a chain whose image comes later."""
    chain = BlockChain(NAMESPACE, 1, [5, 6, 7], extras=PromptExtras([image("a", 2, 1)]))
    assert chain.content(0, 2) == pack_tokens([5, 6])
    assert chain.content(1, 3) != pack_tokens([6, 7])
    assert len(chain.content(1, 3)) % 4 == 1


def test_unpacked_tokens_are_those_that_were_packed() -> None:
    """Up to the largest id there is."""
    token_ids = [TokenId(number) for number in (0, 1, 255, 256, 2**31, 2**32 - 1)]
    assert unpack_tokens(pack_tokens(token_ids)) == token_ids
    assert unpack_tokens(b"") == []
