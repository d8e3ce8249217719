"""Two contents under one digest: what is found is compared, and a collision is a miss that is counted."""

import pytest

from anaphora.cache.chain import BlockChain
from anaphora.cache.extras import MediaItem, PromptExtras
from anaphora.cache.hashing import SHA256_FUNCTION, HashFunction, Namespace, TaggedHashing
from tests.conformance.story import CacheStory, numbers
from tests.hash_twins import ALGORITHMS

# A hash that looks at the first 68 bytes: of a block, the headers, the parent and one token.
FORGETFUL = TaggedHashing("forgetful", HashFunction(lambda data: SHA256_FUNCTION.digest(data[:68]), 32))
CBOR = ALGORITHMS["sha256_cbor"]

in_pages_of = pytest.mark.parametrize("page_size", [16, 32])


def picture(*, is_client_given: bool, offset: int = 0) -> PromptExtras:
    return PromptExtras(
        [MediaItem(identifier="x", offset=offset, num_tokens=2, is_client_given=is_client_given)]
    )


@in_pages_of
def test_other_tokens_under_a_known_digest_are_a_miss(page_size: int) -> None:
    """The second prompt shares the first token of every block with the first one, and so all digests."""
    story = CacheStory(11, page_size=page_size, hash_algorithm=FORGETFUL)
    known = numbers(0, 33)
    other = [token if token % 16 == 0 else token + 1000 for token in known]
    assert story.chain(known).digests == story.chain(other).digests
    story.admit("A", known)
    admitted = story.admit("B", other)
    assert admitted and admitted.hit == 0
    assert [kind for kind, _ in story.log.entries].count("mismatch") >= 1
    assert (story.hit(known), story.hit(other)) == (32, 0)


@in_pages_of
@pytest.mark.parametrize("offset", [0, 20])
def test_another_image_under_a_known_digest_is_a_miss(page_size: int, offset: int) -> None:
    """In CBOR an id that a client chose can be the digest of somebody's image: same digest, other image."""
    story = CacheStory(11, page_size=page_size, hash_algorithm=CBOR)
    known, chosen = (picture(is_client_given=given, offset=offset) for given in (False, True))
    tokens = numbers(0, 33)
    assert story.chain(tokens, extras=known).digests == story.chain(tokens, extras=chosen).digests
    story.admit("A", tokens, extras=known)
    assert story.hit(tokens, extras=known) == 32
    # Whole blocks before the image are the same for both.
    assert story.hit(tokens, extras=chosen) == offset // 16 * 16
    admitted = story.admit("B", tokens, extras=chosen)
    assert admitted and admitted.hit == offset // 16 * 16
    assert "mismatch" in [kind for kind, _ in story.log.entries]


@in_pages_of
def test_another_namespace_under_a_known_digest_is_a_miss(page_size: int) -> None:
    """The model is no part of a CBOR digest."""
    story = CacheStory(11, page_size=page_size, hash_algorithm=CBOR)
    story.admit("A", numbers(0, 33))
    other = BlockChain(Namespace(model_fingerprint=b"other"), 16, numbers(0, 33), algorithm=CBOR)
    assert other.digests == story.chain(numbers(0, 33)).digests
    lookup = story.manager.lookup(other, 33, 33)
    assert lookup.cached_tokens == 0
    assert other.digests[(page_size // 16) - 1] in lookup.mismatches
