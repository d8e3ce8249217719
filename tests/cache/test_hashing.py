"""Digests: the published vectors, and that no field can pass for another."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import BlockChain, pack_tokens
from anaphora.cache.hashing import MediaItem, Namespace, encode_extra, encode_field, root_digest
from anaphora.cache.hashing import block_hasher as hasher

ZERO = bytes(32)


def test_the_root_of_a_plain_namespace_is_the_published_vector() -> None:
    """Model fingerprint of 32 zero bytes, nothing else."""
    root = root_digest(Namespace(model_fingerprint=ZERO).encode())
    assert root.hex() == "ad3cbe13ce75f7b44f642420f439c9662209f5b6af6d1db450c229d6ca6ca4ae"


def test_two_blocks_of_tokens_are_the_published_vectors() -> None:
    """Tokens 0 to 31 in blocks of 16."""
    chain = BlockChain(Namespace(model_fingerprint=ZERO), 16, range(32))
    assert [digest.hex() for digest in chain.digests] == [
        "3610157084ac59327b42bc7121707c186cede3db3680b45e0fee32aad76ca17b",
        "b7e91c23154eac3e40d48f65de27b8d4b7f611c16d0afda046530d1e20e88368",
    ]
    assert int.from_bytes(chain.digests[0][-8:], "big") == 1147910664366104955


def test_a_salt_enters_the_root_and_so_every_block() -> None:
    """cache_salt "salt1"."""
    namespace = Namespace(model_fingerprint=ZERO, cache_salt="salt1")
    chain = BlockChain(namespace, 16, range(16))
    assert (
        root_digest(namespace.encode()).hex()
        == "87d8fc4cc6bae95fe7532aeb0734c22242845ae18060c88b2d8b77db543d1043"
    )
    assert chain.digests[0].hex() == "7595158f48edf5a4fdaf23896f5dbb27cc4c7a30eb5c886743d59a05d2fa8935"


def test_all_namespace_fields_and_media_are_the_published_vectors() -> None:
    """Adapter 0x11…, tenant salt 0x22…, cache_salt, and an image at offset 11."""
    namespace = Namespace(
        model_fingerprint=ZERO, adapter_digest=b"\x11" * 32, tenant_salt=b"\x22" * 32, cache_salt="salt1"
    )
    root = root_digest(namespace.encode())
    assert root.hex() == "4c47f4c038e428f2f11732e3d9297e7ba106add8f094ef492d2ea9a39a479824"
    digest = hasher(16)(root, pack_tokens(range(16)), encode_extra([MediaItem(b"aaa", 11)]))
    assert digest.hex() == "ea432bc81b9d5f35568e57364d9d29bc3cd2a9376c876da1777730be26559b7f"


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_another_process_with_any_hash_seed_derives_the_same_digest(seed: str) -> None:
    """PYTHONHASHSEED plays no part."""
    code = (
        "from anaphora.cache.chain import BlockChain; from anaphora.cache.hashing import Namespace;"
        "print(BlockChain(Namespace(model_fingerprint=bytes(32)), 16, range(16)).digests[0].hex())"
    )
    path = ":".join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "3610157084ac59327b42bc7121707c186cede3db3680b45e0fee32aad76ca17b"


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


def test_fields_cannot_slide_into_each_other() -> None:
    """The pair of a public report: ("org_1", "2345") and ("org_12345", "")."""
    one = Namespace(model_fingerprint=ZERO, tenant_salt=b"org_1", cache_salt="2345")
    other = Namespace(model_fingerprint=ZERO, tenant_salt=b"org_12345", cache_salt="")
    assert one.encode() != other.encode()


def test_a_salt_cannot_pass_for_an_adapter() -> None:
    """The same bytes under another tag."""
    one = Namespace(model_fingerprint=ZERO, adapter_digest=b"abc")
    other = Namespace(model_fingerprint=ZERO, cache_salt="abc")
    assert root_digest(one.encode()) != root_digest(other.encode())


def test_absent_is_not_empty() -> None:
    """No salt, and a salt without characters."""
    assert (
        Namespace(model_fingerprint=ZERO).encode()
        != Namespace(model_fingerprint=ZERO, cache_salt="").encode()
    )


def test_a_field_is_tag_length_body() -> None:
    """Five header bytes, little-endian."""
    assert encode_field(0x12, b"xyz") == b"\x12\x03\x00\x00\x00xyz"


def test_a_client_given_media_id_differs_from_a_content_digest() -> None:
    """The same bytes, one chosen by the client."""
    assert MediaItem(b"aaa", 0).encode() != MediaItem(b"aaa", 0, is_client_given=True).encode()
