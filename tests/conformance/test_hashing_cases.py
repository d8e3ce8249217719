"""Cases 14 to 26 of the conformance table: what enters a digest, in both families of algorithms.

Expected digests come from the twins in `tests/hash_twins.py`, which are written from the published encoding.
"""

from hashlib import sha256 as hashlib_sha256
from typing import Any

import pytest

from anaphora.cache.chain import BlockChain
from anaphora.cache.extras import BlockExtras, MediaExtra, MediaItem, PromptEmbeds, PromptExtras
from anaphora.cache.hashing import HashAlgorithm, Namespace
from anaphora.cache.prefix_index import PrefixIndex
from anaphora.engine.hash_choice import choose_hash_algorithm
from tests.conformance.story import FINGERPRINT, CacheStory, numbers
from tests.hash_twins import (
    ALGORITHMS,
    SEED,
    cbor_chain,
    cbor_root,
    in_blocks,
    sha256,
    v1_chain,
    v1_media,
    v1_root,
    xxh3,
)

CBOR = {"sha256_cbor": sha256, "xxhash_cbor": xxh3}
TAGGED = {"sha256": sha256, "xxhash": xxh3}
in_cbor = pytest.mark.parametrize("name", CBOR)
in_v1 = pytest.mark.parametrize("name", TAGGED)
in_all = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


def item(identifier: str, offset: int, num_tokens: int) -> MediaItem:
    return MediaItem(identifier=identifier, offset=offset, num_tokens=num_tokens)


def namespace(**fields: Any) -> Namespace:
    return Namespace(model_fingerprint=FINGERPRINT, **fields)


def expect_cbor(
    name: str, chain: BlockChain, tokens: list[int], extras: list[tuple[Any, ...] | None]
) -> None:
    """Assert that a chain is hashed over these extras, block by block."""
    blocks = in_blocks(tokens, chain.block_size)
    assert chain.digests == cbor_chain(CBOR[name], SEED, blocks, extras)


def expect_v1(
    name: str,
    chain: BlockChain,
    tokens: list[int],
    extras: list[list[tuple[int, bytes]]],
    root_fields: tuple[tuple[int, bytes], ...] = (),
) -> None:
    """Assert that a chain is hashed over these fields, block by block, under a root with these fields."""
    seed = [(0x05, SEED.encode())] if name == "xxhash" else []
    root = v1_root(TAGGED[name], [(0x01, FINGERPRINT), *root_fields, *seed])
    blocks = in_blocks(tokens, chain.block_size)
    assert chain.digests == v1_chain(TAGGED[name], root, blocks, extras)


def test_case_14_the_same_digest_in_two_groups_is_two_entries() -> None:
    """There is one group, whose index has digests as keys; another would have an index of its own.

    A joint lookup hits only where both have an entry.
    """
    story = CacheStory(11)
    story.admit("A", numbers(0, 16))
    (block,) = story.manager.pool.index
    groups = [story.manager.pool.index, PrefixIndex()]
    assert [group.get(block.digest) for group in groups] == [block, None]
    assert not all(group.get(block.digest) for group in groups)
    groups[1].add(block)
    assert all(group.get(block.digest) for group in groups)
    assert groups[0].remove(block)
    assert [group.get(block.digest) for group in groups] == [None, block]


# Three images in a prompt of 55 tokens and more: aaa in [11, 21), bbb in [30, 48), ccc in [48, 55).
IMAGES = [item("aaa", 11, 10), item("bbb", 30, 18), item("ccc", 48, 7)]
PICTURED = [(("aaa", 11),), (("aaa", -5), ("bbb", 14)), (("bbb", -2),), (("ccc", 0),)]


@in_cbor
def test_case_15_each_block_carries_the_images_in_it_at_their_offsets(name: str) -> None:
    """As flat extras, the offsets counted from the block's start."""
    chain = BlockChain(
        namespace(), 16, numbers(0, 64), algorithm=ALGORITHMS[name], extras=PromptExtras(IMAGES)
    )
    expect_cbor(name, chain, numbers(0, 64), [*PICTURED])


@in_v1
def test_case_15_each_block_has_one_field_12_for_each_of_its_images(name: str) -> None:
    """The same pairs."""
    chain = BlockChain(
        namespace(), 16, numbers(0, 64), algorithm=ALGORITHMS[name], extras=PromptExtras(IMAGES)
    )
    fields = [[v1_media(*pair) for pair in block] for block in PICTURED]
    expect_v1(name, chain, numbers(0, 64), fields)


@in_all
def test_case_16_the_same_images_before_another_text_are_hit(algorithm: HashAlgorithm) -> None:
    """48 common tokens with all of two images, then the third and 4 tokens of text."""
    story, extras = CacheStory(11, hash_algorithm=algorithm), PromptExtras(IMAGES)
    story.admit("A", numbers(0, 55) + numbers(1000, 4), extras=extras)
    second = story.admit("B", numbers(0, 55) + numbers(2000, 4), extras=extras)
    assert second and (second.hit, second.pages) == (48, [1, 2, 3, 5])
    assert story.hit(numbers(0, 59)) == 0


@pytest.mark.parametrize(
    "start, end, expected",
    [
        (0, 5, (("h1", 0),)),
        (3, 8, (("h1", -3),)),
        (6, 10, None),
        (0, 15, (("h1", 0), ("h2", 10))),
    ],
)
def test_case_17_a_block_has_the_items_that_overlap_it(
    start: int, end: int, expected: tuple[tuple[str, int], ...] | None
) -> None:
    """Items of 5 tokens at 0 and 10. There is no next item to be remembered: each block is asked on its own."""
    extras = PromptExtras([item("h1", 0, 5), item("h2", 10, 5)])
    found = extras.of_block(start, end)
    assert found == (expected and BlockExtras(tuple(MediaExtra(*pair) for pair in expected)))


@in_all
def test_case_18_another_first_image_changes_every_digest(algorithm: HashAlgorithm) -> None:
    """Two blocks with an image each, of which only the first differs: the chain carries it on."""
    one, two = (
        BlockChain(
            namespace(),
            5,
            numbers(0, 10),
            algorithm=algorithm,
            extras=PromptExtras([item(first, 0, 5), item("h2", 5, 5)]),
        )
        for first in ("h1", "other")
    )
    assert not set(one.digests) & set(two.digests)
    assert one.contents[1] == two.contents[1]


@in_cbor
def test_case_19_a_salt_stands_in_block_0_only(name: str) -> None:
    """59 tokens: the text as it is, then nothing."""
    chain = BlockChain(namespace(cache_salt="salt1"), 16, numbers(0, 59), algorithm=ALGORITHMS[name])
    expect_cbor(name, chain, numbers(0, 59), [("salt1",), None, None])


@in_v1
def test_case_19_a_salt_is_a_field_of_the_root(name: str) -> None:
    """No block has an extra."""
    chain = BlockChain(namespace(cache_salt="salt1"), 16, numbers(0, 59), algorithm=ALGORITHMS[name])
    expect_v1(name, chain, numbers(0, 59), [[], [], []], ((0x04, b"salt1"),))


@in_all
def test_case_20_the_same_text_is_hit_under_the_same_salt_only(algorithm: HashAlgorithm) -> None:
    """59 tokens: 48, 0, 0."""
    story = CacheStory(11, hash_algorithm=algorithm)
    story.admit("A", numbers(0, 59), "salt1")
    assert [story.hit(numbers(0, 59), salt) for salt in ("salt1", "salt2", None)] == [48, 0, 0]


@in_cbor
def test_case_21_a_salt_follows_the_image_in_block_0(name: str) -> None:
    """In that order; block 1 has neither."""
    chain = BlockChain(
        namespace(cache_salt="salt"),
        5,
        numbers(0, 10),
        algorithm=ALGORITHMS[name],
        extras=PromptExtras([item("h1", 0, 5)]),
    )
    expect_cbor(name, chain, numbers(0, 10), [(("h1", 0), "salt"), None])


@in_v1
def test_case_21_block_0_has_the_image_alone_because_the_root_has_the_salt(name: str) -> None:
    """Field 12 in the block, field 04 in the root."""
    chain = BlockChain(
        namespace(cache_salt="salt"),
        5,
        numbers(0, 10),
        algorithm=ALGORITHMS[name],
        extras=PromptExtras([item("h1", 0, 5)]),
    )
    expect_v1(name, chain, numbers(0, 10), [[v1_media("h1", 0)], []], ((0x04, b"salt"),))


ADAPTER = b"\xab" * 32


@in_cbor
def test_case_22_an_adapter_is_in_every_block(name: str) -> None:
    """As `lora:` and the digest of its content, never its name; without one there is nothing."""
    with_adapter, without = (
        BlockChain(namespace(**fields), 3, numbers(0, 9), algorithm=ALGORITHMS[name])
        for fields in ({"adapter_digest": ADAPTER}, {})
    )
    expect_cbor(name, with_adapter, numbers(0, 9), [("lora:" + "ab" * 32,)] * 3)
    expect_cbor(name, without, numbers(0, 9), [None] * 3)


@in_v1
def test_case_22_an_adapter_is_a_field_of_the_root(name: str) -> None:
    """No block has an extra."""
    with_adapter, without = (
        BlockChain(namespace(**fields), 3, numbers(0, 9), algorithm=ALGORITHMS[name])
        for fields in ({"adapter_digest": ADAPTER}, {})
    )
    expect_v1(name, with_adapter, numbers(0, 9), [[], [], []], ((0x02, ADAPTER),))
    expect_v1(name, without, numbers(0, 9), [[], [], []])


ROWS = bytes(range(40))  # ten rows of four bytes
ROW_DIGESTS = [hashlib_sha256(ROWS[:20]).digest(), hashlib_sha256(ROWS[20:]).digest()]


@in_cbor
def test_case_23_embeddings_add_the_digest_of_the_blocks_rows(name: str) -> None:
    """Block 5, ten rows; with an image, the image comes first."""
    for media, expected in (
        ([], [(ROW_DIGESTS[0],), (ROW_DIGESTS[1],)]),
        ([item("h1", 0, 5)], [(("h1", 0), ROW_DIGESTS[0]), (ROW_DIGESTS[1],)]),
    ):
        extras = PromptExtras(media, PromptEmbeds(ROWS, 4))
        chain = BlockChain(namespace(), 5, [0] * 10, algorithm=ALGORITHMS[name], extras=extras)
        expect_cbor(name, chain, [0] * 10, list(expected))


@in_v1
def test_case_23_embeddings_are_the_field_13(name: str) -> None:
    """Behind field 12."""
    extras = PromptExtras([item("h1", 0, 5)], PromptEmbeds(ROWS, 4))
    chain = BlockChain(namespace(), 5, [0] * 10, algorithm=ALGORITHMS[name], extras=extras)
    fields = [[v1_media("h1", 0), (0x13, ROW_DIGESTS[0])], [(0x13, ROW_DIGESTS[1])]]
    expect_v1(name, chain, [0] * 10, fields)


def test_case_23_the_digest_of_a_range_of_rows_is_computed_once() -> None:
    """The second answer is the very same object."""
    embeds = PromptEmbeds(ROWS, 4)
    assert embeds.digest(0, 5) is embeds.digest(0, 5)
    assert embeds.digest(0, 5) == ROW_DIGESTS[0]


def root(name: str, environ: dict[str, str], **fields: Any) -> bytes:
    return choose_hash_algorithm(name, environ).hasher(namespace(**fields), 16).root


def test_case_24_without_a_seed_the_root_is_stable_across_starts() -> None:
    """CBOR: the digest of a fixed text. Encoding v1: the namespace, whose vectors are published."""
    for _ in range(2):
        assert root("sha256_cbor", {}) == cbor_root(sha256, "vllm-none-hash")
        assert root("sha256", {}) == v1_root(sha256, [(0x01, FINGERPRINT)])


def test_case_25_a_seed_is_the_root_of_cbor_and_nothing_to_sha256() -> None:
    """PYTHONHASHSEED=x."""
    assert root("sha256_cbor", {"PYTHONHASHSEED": "x"}) == cbor_root(sha256, "x")
    assert root("sha256", {"PYTHONHASHSEED": "x"}) == root("sha256", {})


@pytest.mark.parametrize("name", ["xxhash", "xxhash_cbor"])
def test_case_26_without_a_seed_xxhash_draws_another_root_at_each_start(name: str) -> None:
    """Five starts."""
    assert len({root(name, {}) for _ in range(5)}) == 5
