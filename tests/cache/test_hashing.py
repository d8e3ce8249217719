"""Digests over encoding v1: the published vectors, and that no field can pass for another."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import BlockChain, pack_tokens
from anaphora.cache.extras import BlockExtras, MediaExtra
from anaphora.cache.hashing import (
    SHA256,
    SHA256_FUNCTION,
    BlockDigest,
    HashFunction,
    Namespace,
    check_cache_salt,
)
from anaphora.errors import InvalidRequestError
from tests.hash_twins import ALGORITHMS, SEED, in_blocks, v1_chain, v1_media, v1_root, xxh3

ZERO = bytes(32)
PLAIN = Namespace(model_fingerprint=ZERO)
FULL = Namespace(
    model_fingerprint=ZERO, adapter_digest=b"\x11" * 32, tenant_salt=b"\x22" * 32, cache_salt="salt1"
)


def test_the_root_of_a_plain_namespace_is_the_published_vector() -> None:
    """Model fingerprint of 32 zero bytes, nothing else."""
    root = SHA256.hasher(PLAIN, 16).root
    assert root.hex() == "ad3cbe13ce75f7b44f642420f439c9662209f5b6af6d1db450c229d6ca6ca4ae"


def test_two_blocks_of_tokens_are_the_published_vectors() -> None:
    """Tokens 0 to 31 in blocks of 16."""
    chain = BlockChain(PLAIN, 16, range(32))
    assert [digest.hex() for digest in chain.digests] == [
        "3610157084ac59327b42bc7121707c186cede3db3680b45e0fee32aad76ca17b",
        "b7e91c23154eac3e40d48f65de27b8d4b7f611c16d0afda046530d1e20e88368",
    ]
    assert int.from_bytes(chain.digests[0][-8:], "big") == 1147910664366104955


def test_a_salt_enters_the_root_and_so_every_block() -> None:
    """cache_salt "salt1"."""
    namespace = Namespace(model_fingerprint=ZERO, cache_salt="salt1")
    root = SHA256.hasher(namespace, 16).root
    assert root.hex() == "87d8fc4cc6bae95fe7532aeb0734c22242845ae18060c88b2d8b77db543d1043"
    digest = BlockChain(namespace, 16, range(16)).digests[0]
    assert digest.hex() == "7595158f48edf5a4fdaf23896f5dbb27cc4c7a30eb5c886743d59a05d2fa8935"


def test_all_namespace_fields_and_media_are_the_published_vectors() -> None:
    """Adapter 0x11…, tenant salt 0x22…, cache_salt, and an image at offset 11."""
    hasher = SHA256.hasher(FULL, 16)
    assert hasher.root.hex() == "4c47f4c038e428f2f11732e3d9297e7ba106add8f094ef492d2ea9a39a479824"
    extras = {0: BlockExtras((MediaExtra("aaa", 11),))}
    (digest,) = hasher.digests(hasher.root, 0, [pack_tokens(range(16))], extras)
    assert digest.hex() == "ea432bc81b9d5f35568e57364d9d29bc3cd2a9376c876da1777730be26559b7f"


def test_xxhash_has_the_seed_in_its_root_and_16_bytes_of_parent_in_its_blocks() -> None:
    """PYTHONHASHSEED "0", model fingerprint of 32 zero bytes, tokens 0 to 31: vectors of our own."""
    root = v1_root(xxh3, [(0x01, ZERO), (0x05, b"0")])
    hasher = ALGORITHMS["xxhash"].hasher(PLAIN, 16)
    assert hasher.root == root
    assert root.hex() == "55a1f4a02312df58556b967760ca0206"
    chain = BlockChain(PLAIN, 16, range(32), algorithm=ALGORITHMS["xxhash"])
    assert chain.digests == v1_chain(xxh3, root, in_blocks(range(32), 16), [(), ()])
    assert [digest.hex() for digest in chain.digests] == [
        "158caa6bba2881cca24be75ab5fd3bd1",
        "c0534dead2ba613266841f6296da485f",
    ]


def test_extras_go_to_the_blocks_they_are_named_for_wherever_the_hasher_begins() -> None:
    """Blocks 5, 6 and 7, of which 6 has an image and an embedding."""
    hasher = SHA256.hasher(PLAIN, 2)
    parent = BlockDigest(b"p" * 32)
    extras = {6: BlockExtras((MediaExtra("m", -1),), b"e" * 32)}
    contents = [pack_tokens(tokens) for tokens in ([1, 2], [3, 4], [5, 6])]
    twin = v1_chain(
        SHA256_FUNCTION.digest,
        parent,
        [[1, 2], [3, 4], [5, 6]],
        [(), [v1_media("m", -1), (0x13, b"e" * 32)], ()],
    )
    assert hasher.digests(parent, 5, contents, extras) == twin


@given(st.binary(max_size=80), st.binary(min_size=32, max_size=32), st.lists(st.binary(max_size=200)))
def test_sha256_links_as_any_hash_function_does(head: bytes, parent: bytes, bodies: list[bytes]) -> None:
    """The shortcut of the hot loop."""
    plain = HashFunction(SHA256_FUNCTION.digest, 32)
    one, other = (f.link(head, BlockDigest(parent), bodies) for f in (SHA256_FUNCTION, plain))
    assert one == other


@pytest.mark.parametrize("seed", [None, "0", "1", "random"])
def test_another_process_derives_the_same_digests(seed: str | None) -> None:
    """Python's own hash is salted by PYTHONHASHSEED, or anew in each process; no digest may depend on that.

    The seed of the algorithms is fixed here, since they read the same variable on purpose.
    """
    code = (
        "from tests.hash_twins import ALGORITHMS;"
        "from tests.cache.test_hashing import FULL;"
        "from anaphora.cache.chain import BlockChain;"
        "print(*(BlockChain(FULL, 16, range(32), algorithm=a).digests[1].hex() for a in ALGORITHMS.values()))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    environ |= {"PYTHONPATH": ":".join(filter(None, sys.path))}
    environ |= {"PYTHONHASHSEED": seed} if seed else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        BlockChain(FULL, 16, range(32), algorithm=algorithm).digests[1].hex()
        for algorithm in ALGORITHMS.values()
    ]


BYTES = st.none() | st.binary(max_size=8)
NAMESPACES = st.builds(
    Namespace,
    model_fingerprint=st.binary(max_size=8),
    adapter_digest=BYTES,
    tenant_salt=BYTES,
    cache_salt=st.none() | st.text(max_size=8),
)


@given(NAMESPACES, NAMESPACES)
def test_two_namespaces_have_the_same_encoding_only_if_they_are_equal(
    one: Namespace, other: Namespace
) -> None:
    """No field can slide into its neighbour."""
    assert (one.encode() == other.encode()) == (one == other)


@given(NAMESPACES)
def test_an_encoding_can_be_read_back(namespace: Namespace) -> None:
    """So no two namespaces share one: fields in ascending order, each with its length, absent ones left out."""
    rest = namespace.encode()
    found: dict[int, bytes] = {}
    while rest:
        tag, length = rest[0], int.from_bytes(rest[1:5], "little")
        assert all(tag > earlier for earlier in found)
        found[tag], rest = rest[5 : 5 + length], rest[5 + length :]
    salt = found.get(0x04)
    assert found.pop(0x00) == b"anaphora.root.v1"
    assert namespace == Namespace(
        model_fingerprint=found[0x01],
        adapter_digest=found.get(0x02),
        tenant_salt=found.get(0x03),
        cache_salt=None if salt is None else salt.decode(),
    )


def test_the_two_salts_alone_are_the_fields_03_and_04() -> None:
    """Whatever else the namespace holds."""
    salts = b"\x03\x20\0\0\0" + b"\x22" * 32 + b"\x04\x05\0\0\0salt1"
    assert FULL.encode_salts() == salts
    assert PLAIN.encode_salts() == b""


def test_fields_cannot_slide_into_each_other() -> None:
    """The pair of a public report: ("org_1", "2345") and ("org_12345", "")."""
    one = Namespace(model_fingerprint=ZERO, tenant_salt=b"org_1", cache_salt="2345")
    other = Namespace(model_fingerprint=ZERO, tenant_salt=b"org_12345", cache_salt="")
    assert one.encode() != other.encode()


def test_a_salt_cannot_pass_for_an_adapter() -> None:
    """The same bytes under another tag."""
    one = Namespace(model_fingerprint=ZERO, adapter_digest=b"abc")
    other = Namespace(model_fingerprint=ZERO, cache_salt="abc")
    assert SHA256.hasher(one, 16).root != SHA256.hasher(other, 16).root


def test_a_salt_cannot_pass_for_a_seed() -> None:
    """The seed of xxhash has its own field, so a client who knows it has won nothing."""
    seeded = ALGORITHMS["xxhash"].hasher(PLAIN, 16).root
    salted = Namespace(model_fingerprint=ZERO, cache_salt=SEED)
    assert seeded != xxh3(salted.encode())
    assert ALGORITHMS["xxhash"].hasher(salted, 16).root not in {seeded, xxh3(salted.encode())}


def test_absent_is_not_empty() -> None:
    """No salt, and a salt without characters."""
    assert PLAIN.encode() != Namespace(model_fingerprint=ZERO, cache_salt="").encode()


def test_every_algorithm_says_its_name_and_how_long_its_digests_are() -> None:
    """32 bytes of SHA-256, 16 of XXH3-128."""
    assert {name: (a.name, a.digest_bytes) for name, a in ALGORITHMS.items()} == {
        "sha256": ("sha256", 32),
        "sha256_cbor": ("sha256_cbor", 32),
        "xxhash": ("xxhash", 16),
        "xxhash_cbor": ("xxhash_cbor", 16),
    }
    for algorithm in ALGORITHMS.values():
        chain = BlockChain(PLAIN, 2, range(4), algorithm=algorithm)
        assert {len(digest) for digest in chain.digests} == {algorithm.digest_bytes}


@pytest.mark.parametrize("name", ["sha256_cbor", "xxhash_cbor"])
@pytest.mark.parametrize("salt", ["lora:abc", "salt:", "salt:" + "0" * 64])
def test_a_salt_that_looks_like_one_of_ours_is_refused_where_slots_carry_no_tag(name: str, salt: str) -> None:
    """It could name another tenant's namespace or an adapter."""
    with pytest.raises(InvalidRequestError, match=f"begins with '{salt[:5]}'.*{name}") as caught:
        check_cache_salt(salt, ALGORITHMS[name])
    assert caught.value.param == "cache_salt"


@pytest.mark.parametrize("name", ["sha256", "xxhash"])
def test_with_tagged_fields_a_salt_may_begin_as_it_likes(name: str) -> None:
    """No slot to be mistaken for."""
    check_cache_salt("lora:abc", ALGORITHMS[name])
    check_cache_salt("salt:abc", ALGORITHMS[name])


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("salt", [None, "salt1", "LORA:x", " lora:x", "lora", "ä€"])
def test_other_salts_pass(name: str, salt: str | None) -> None:
    """Only the beginning counts."""
    check_cache_salt(salt, ALGORITHMS[name])


def test_a_salt_that_is_no_text_is_refused() -> None:
    """JSON can carry half of a surrogate pair, which has no UTF-8."""
    with pytest.raises(InvalidRequestError, match="surrogate pair at character 2") as caught:
        check_cache_salt("ab\ud800", SHA256)
    assert caught.value.param == "cache_salt"
