"""The chain grows with its tokens and hashes nothing twice."""

from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import BlockChain, UnhashedChain, pack_tokens
from anaphora.cache.hashing import Namespace

NAMESPACE = Namespace(model_fingerprint=b"m")


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), max_size=9), max_size=6))
def test_growing_in_pieces_gives_the_chain_of_the_whole(pieces: list[list[int]]) -> None:
    """However the tokens arrive."""
    grown = BlockChain(NAMESPACE, 4)
    for piece in pieces:
        grown.extend(piece)
    whole = BlockChain(NAMESPACE, 4, [token for piece in pieces for token in piece])
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
