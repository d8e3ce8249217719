"""Digests the slow way, written from the table in docs/cache-semantics.md, and the algorithms to compare with them."""

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Any

import cbor2
import xxhash

from anaphora.cache.hashing import HashAlgorithm
from anaphora.config import HASH_ALGORITHMS
from anaphora.engine.hash_choice import choose_hash_algorithm

Hash = Callable[[bytes], bytes]

SEED = "0"
ALGORITHMS: dict[str, HashAlgorithm] = {
    name: choose_hash_algorithm(name, {"PYTHONHASHSEED": SEED}) for name in HASH_ALGORITHMS
}


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def xxh3(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


def cbor_root(hash_: Hash, seed: str) -> bytes:
    return hash_(cbor2.dumps(seed, canonical=True))


def cbor_chain(
    hash_: Hash, seed: str, blocks: Sequence[Sequence[int]], extras: Sequence[tuple[Any, ...] | None]
) -> list[bytes]:
    """Return the digest of each block, its extras given as the tuple that they are hashed as."""
    parent, digests = cbor_root(hash_, seed), []
    for tokens, extra in zip(blocks, extras, strict=True):
        parent = hash_(cbor2.dumps((parent, tuple(tokens), extra), canonical=True))
        digests.append(parent)
    return digests


def field(tag: int, body: bytes) -> bytes:
    return bytes([tag]) + len(body).to_bytes(4, "little") + body


def v1_root(hash_: Hash, fields: Sequence[tuple[int, bytes]]) -> bytes:
    return hash_(field(0x00, b"anaphora.root.v1") + b"".join(field(tag, body) for tag, body in fields))


def v1_chain(
    hash_: Hash, root: bytes, blocks: Sequence[Sequence[int]], extras: Sequence[Sequence[tuple[int, bytes]]]
) -> list[bytes]:
    """Return the digest of each block, its extras given as tags and bodies."""
    parent, digests = root, []
    for tokens, extra in zip(blocks, extras, strict=True):
        fields = [
            (0x00, b"anaphora.block.v1"),
            (0x10, parent),
            (0x11, struct.pack(f"<{len(tokens)}I", *tokens)),
            *extra,
        ]
        parent = hash_(b"".join(field(tag, body) for tag, body in fields))
        digests.append(parent)
    return digests


def v1_media(identifier: str, offset: int, *, is_client_given: bool = False) -> tuple[int, bytes]:
    """Return the field of one media item."""
    identity = field(0x02 if is_client_given else 0x01, identifier.encode())
    return 0x12, identity + field(0x03, offset.to_bytes(8, "little", signed=True))


def in_blocks(tokens: Sequence[int], size: int) -> list[Sequence[int]]:
    """Return the full blocks."""
    return [tokens[start : start + size] for start in range(0, len(tokens) - size + 1, size)]
