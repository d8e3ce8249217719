"""Digests over canonical CBOR: the published vectors, and a twin that lets cbor2 do the encoding."""

import hashlib
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from anaphora.cache.cbor_hashing import DEFAULT_SEED, CborHashing
from anaphora.cache.chain import BlockChain, pack_tokens
from anaphora.cache.extras import BlockExtras, MediaExtra, MediaItem, PromptEmbeds, PromptExtras
from anaphora.cache.hashing import SHA256_FUNCTION, BlockDigest, HashFunction, Namespace
from tests.hash_twins import SEED, cbor_chain, cbor_root, in_blocks, sha256, xxh3

ZERO = bytes(32)
PLAIN = Namespace(model_fingerprint=ZERO)
CBOR = CborHashing("sha256_cbor", SHA256_FUNCTION)
XXH3 = CborHashing("xxhash_cbor", HashFunction(xxh3, 16), SEED)


def digests(tokens: range, namespace: Namespace, extras: PromptExtras | None = None) -> list[BlockDigest]:
    return list(BlockChain(namespace, 16, tokens, algorithm=CBOR, extras=extras).digests)


def test_the_roots_are_the_published_vectors() -> None:
    """The default seed and "0"; the namespace has no part in it."""
    assert (
        CBOR.hasher(PLAIN, 16).root.hex()
        == "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0"
    )
    seeded = CborHashing("sha256_cbor", SHA256_FUNCTION, "0")
    other = Namespace(model_fingerprint=b"other", cache_salt="s", tenant_salt=b"t", adapter_digest=b"a")
    for namespace in (PLAIN, other):
        root = seeded.hasher(namespace, 16).root
        assert root.hex() == "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e"


def test_two_blocks_of_tokens_are_the_published_vectors() -> None:
    """Tokens 0 to 31 in blocks of 16."""
    first, second = digests(range(32), PLAIN)
    assert first.hex() == "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749"
    assert second.hex() == "c300ec275d7bf08af8fc63e76cdc0086911bbc7091e03c5cf892553bef84ef0c"
    assert int.from_bytes(first[-8:], "big") == 2233398808101521225


def test_a_salted_block_is_the_published_vector() -> None:
    """cache_salt "salt1" and no API key: the text as it is."""
    (digest,) = digests(range(16), Namespace(model_fingerprint=ZERO, cache_salt="salt1"))
    assert digest.hex() == "9eea78048e7f873ff65e882581bb8916233a9e83a9f2d538236b8389aa576c0a"


def test_the_order_of_the_extras_is_that_of_the_published_vector() -> None:
    """Adapter, media, salt. The vector names its adapter; we never do, hence the twin and our own vector."""
    blocks, root = [range(16)], DEFAULT_SEED
    published = cbor_chain(sha256, root, blocks, [("my-lora", ("aaa", 11), "salt1")])
    assert published[0].hex() == "d66bc495967157de9b9249bbfe21e26813bdb356d6b516c44eeb9080e3b464d7"
    namespace = Namespace(model_fingerprint=ZERO, cache_salt="salt1", adapter_digest=b"\x11" * 32)
    media = PromptExtras([MediaItem(identifier="aaa", offset=11, num_tokens=2)])
    ours = digests(range(16), namespace, media)
    assert ours == cbor_chain(sha256, root, blocks, [("lora:" + "11" * 32, ("aaa", 11), "salt1")])
    assert ours[0].hex() == "995322bee01be2dc118377deadbf70b7b5d8999b643aab08cc705065565a50be"


def test_embeddings_come_last() -> None:
    """All four slots of block 0; behind it the adapter and the embeddings remain."""
    namespace = Namespace(model_fingerprint=ZERO, cache_salt="s", adapter_digest=b"\xab")
    extras = PromptExtras([MediaItem(identifier="m", offset=1, num_tokens=3)], PromptEmbeds(b"0123" * 32, 4))
    rows = [hashlib.sha256(b"0123" * 16).digest()] * 2
    assert digests(range(32), namespace, extras) == cbor_chain(
        sha256,
        DEFAULT_SEED,
        in_blocks(range(32), 16),
        [("lora:ab", ("m", 1), "s", rows[0]), ("lora:ab", rows[1])],
    )


def test_xxhash_cbor_is_the_same_over_another_hash() -> None:
    """PYTHONHASHSEED "0", tokens 0 to 31: vectors of our own, 16 bytes each."""
    chain = BlockChain(PLAIN, 16, range(32), algorithm=XXH3)
    assert XXH3.hasher(PLAIN, 16).root == cbor_root(xxh3, SEED)
    assert cbor_root(xxh3, SEED).hex() == "1ebe36576dcb573f26b99533a20aaeca"
    assert chain.digests == cbor_chain(xxh3, SEED, in_blocks(range(32), 16), [None, None])
    assert [digest.hex() for digest in chain.digests] == [
        "209f5d549fc07c8e39d823615ede61ce",
        "03888914ee75b87e89df867a21beb72b",
    ]


TOKENS = st.lists(
    st.integers(0, 300) | st.integers(0, 2**32 - 1) | st.sampled_from([23, 24, 255, 256, 65535, 65536]),
    max_size=40,
)
MEDIA = st.lists(
    st.builds(
        MediaItem,
        identifier=st.text(max_size=30),
        offset=st.integers(0, 30),
        num_tokens=st.integers(1, 20),
    ),
    max_size=3,
)


@given(
    TOKENS,
    st.integers(1, 30),
    st.integers(0, 40),
    MEDIA,
    st.none() | st.text(max_size=5),
    st.none() | st.binary(max_size=40),
)
def test_any_chain_is_that_of_the_twin(
    tokens: list[int],
    size: int,
    cut: int,
    media: list[MediaItem],
    salt: str | None,
    adapter: bytes | None,
) -> None:
    """All lengths of numbers and arrays, also when the tokens come in two pieces."""
    blocks = in_blocks(tokens, size)
    expected: list[tuple[Any, ...] | None] = []
    for number in range(len(blocks)):
        start, end = number * size, (number + 1) * size
        items = sorted(
            (item for item in media if item.offset < end and item.end > start), key=lambda i: i.offset
        )
        flat: list[Any] = [] if adapter is None else ["lora:" + adapter.hex()]
        flat += [(item.identifier, item.offset - start) for item in items]
        flat += [salt] if salt is not None and number == 0 else []
        expected.append(tuple(flat) or None)
    namespace = Namespace(model_fingerprint=ZERO, cache_salt=salt, adapter_digest=adapter)
    chain = BlockChain(namespace, size, tokens[:cut], algorithm=CBOR, extras=PromptExtras(media))
    chain.extend(tokens[cut:])
    assert chain.digests == cbor_chain(sha256, DEFAULT_SEED, blocks, expected)


def test_a_hasher_that_begins_behind_block_0_adds_no_salt() -> None:
    """Blocks 3 and 4, of which 4 has an image."""
    hasher = CBOR.hasher(Namespace(model_fingerprint=ZERO, cache_salt="s"), 2)
    parent = BlockDigest(cbor_root(sha256, DEFAULT_SEED))
    contents, extras = [pack_tokens([1, 2]), pack_tokens([3, 4])], {4: BlockExtras((MediaExtra("m", -1),))}
    twin = cbor_chain(sha256, DEFAULT_SEED, [[1, 2], [3, 4]], [None, (("m", -1),)])
    assert hasher.digests(parent, 3, contents, extras) == twin


def slot(namespace: Namespace) -> Any:
    """Return what the twin must put into block 0's extras to agree."""
    digest = hashlib.sha256(namespace.encode_salts()).hexdigest()
    chain = BlockChain(namespace, 16, range(16), algorithm=CBOR)
    candidates = [None, (namespace.cache_salt,), ("salt:" + digest,)]
    found = [c for c in candidates if cbor_chain(sha256, DEFAULT_SEED, [range(16)], [c]) == chain.digests]
    (only,) = found
    return only


def test_with_an_api_key_the_slot_holds_a_digest_of_both_salts() -> None:
    """SHA-256 over fields 03 and 04; the client's own text is never there, and needs not be."""
    tenant = b"\x22" * 32
    both = field_03 = b"\x03\x20\0\0\0" + tenant
    both += b"\x04\x05\0\0\0salt1"
    salted = Namespace(model_fingerprint=ZERO, tenant_salt=tenant, cache_salt="salt1")
    unsalted = Namespace(model_fingerprint=ZERO, tenant_salt=tenant)
    assert slot(salted) == ("salt:" + hashlib.sha256(both).hexdigest(),)
    assert slot(unsalted) == ("salt:" + hashlib.sha256(field_03).hexdigest(),)
    assert (
        digests(range(16), salted)[0].hex()
        == "d0c28c74dbaaffe5d293ca67f633a23ef5c09af79038204412a53bd776215bba"
    )


def test_without_an_api_key_the_slot_holds_the_clients_text_or_is_not_there() -> None:
    """An empty text is a text."""
    assert slot(Namespace(model_fingerprint=ZERO, cache_salt="salt1")) == ("salt1",)
    assert slot(Namespace(model_fingerprint=ZERO, cache_salt="")) == ("",)
    assert slot(PLAIN) is None


BYTES = st.none() | st.binary(max_size=4)


@given(BYTES, BYTES, BYTES, BYTES, st.none() | st.text(max_size=4), st.none() | st.text(max_size=4))
@pytest.mark.parametrize("algorithm", [CBOR, XXH3])
def test_two_namespaces_of_a_model_share_no_block(
    algorithm: CborHashing,
    adapter: bytes | None,
    other_adapter: bytes | None,
    tenant: bytes | None,
    other_tenant: bytes | None,
    salt: str | None,
    other_salt: str | None,
) -> None:
    """Adapter, tenant or salt: one that differs parts all blocks. Reserved beginnings are refused elsewhere."""
    prefixes = algorithm.reserved_salt_prefixes
    assume(not (salt or "").startswith(prefixes) and not (other_salt or "").startswith(prefixes))
    one = Namespace(model_fingerprint=ZERO, adapter_digest=adapter, tenant_salt=tenant, cache_salt=salt)
    other = Namespace(
        model_fingerprint=ZERO, adapter_digest=other_adapter, tenant_salt=other_tenant, cache_salt=other_salt
    )
    first, second = (BlockChain(n, 1, [7, 7], algorithm=algorithm).digests for n in (one, other))
    assert (first == second) == (one == other)
    assert one == other or not set(first) & set(second)


def test_the_model_is_no_part_of_a_digest_but_of_what_is_compared() -> None:
    """As documented: who shares digests between models must add the fingerprint."""
    one, two = (BlockChain(Namespace(model_fingerprint=m), 2, [1, 2], algorithm=CBOR) for m in (b"a", b"b"))
    assert one.digests == two.digests
    assert one.namespace != two.namespace


def test_a_client_given_id_has_the_digest_of_an_equal_content_id_but_other_content() -> None:
    """The slots carry no tag, so the comparison must tell them apart."""
    content, client = (
        BlockChain(
            PLAIN,
            2,
            [0, 0],
            algorithm=CBOR,
            extras=PromptExtras([MediaItem(identifier="x", offset=0, num_tokens=2, is_client_given=given)]),
        )
        for given in (False, True)
    )
    assert content.digests == client.digests
    assert content.contents != client.contents
