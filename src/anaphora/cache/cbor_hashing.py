"""Hash algorithms over canonical CBOR, whose digests other programs can compute as well.

A block is the array `[parent, token ids, extras]`, with extras nil when there are none. They are flat and
carry no tags: `[adapter, media…, salt, digest of embeddings]`, hence the reserved prefixes.
The model is no part of these digests.
"""

import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256

from anaphora.cache import cbor
from anaphora.cache.extras import BlockExtras
from anaphora.cache.hashing import TOKEN_BYTES, BlockDigest, BlockHasher, HashFunction, Namespace

DEFAULT_SEED = "vllm-none-hash"

_ADAPTER_PREFIX, _SALT_PREFIX = "lora:", "salt:"


class CborHashing:
    """A hash function over canonical CBOR; the root is the digest of `seed` alone."""

    reserved_salt_prefixes = (_ADAPTER_PREFIX, _SALT_PREFIX)

    def __init__(self, name: str, function: HashFunction, seed: str = DEFAULT_SEED) -> None:
        self.name = name
        self.digest_bytes = function.digest_bytes
        self._function = function
        self._root = BlockDigest(function.digest(cbor.encode(seed)))
        self._encoded_ids = _EncodedIds()

    def hasher(self, namespace: Namespace, block_size: int) -> BlockHasher:
        """Return the hasher of one namespace."""
        return _CborHasher(self._function, self._root, namespace, block_size, self._encoded_ids)


class _EncodedIds(dict[int, bytes]):
    """The encoding of every token id seen so far: at most as many as the vocabulary has."""

    def __missing__(self, token_id: int) -> bytes:
        encoded = self[token_id] = cbor.encode_int(token_id)
        return encoded


class _CborHasher:
    __slots__ = (
        "_adapter",
        "_array_header",
        "_block_size",
        "_encoded_ids",
        "_function",
        "_head",
        "_salt",
        "root",
    )

    def __init__(
        self,
        function: HashFunction,
        root: BlockDigest,
        namespace: Namespace,
        block_size: int,
        encoded_ids: _EncodedIds,
    ) -> None:
        self.root = root
        self._function = function
        self._encoded_ids = encoded_ids
        self._block_size = block_size
        self._head = cbor.array_header(3) + cbor.bytes_header(function.digest_bytes)
        self._array_header = cbor.array_header(block_size)
        adapter = namespace.adapter_digest
        self._adapter = [] if adapter is None else [_ADAPTER_PREFIX + adapter.hex()]
        self._salt = _salt_slot(namespace)

    def digests(
        self,
        parent: BlockDigest,
        first_block: int,
        contents: Sequence[bytes],
        extras: Mapping[int, BlockExtras],
    ) -> list[BlockDigest]:
        encoded = list(map(self._encoded_ids.__getitem__, _unpack_tokens(b"".join(contents))))
        size, header, join = self._block_size, self._array_header, b"".join
        starts = range(0, len(encoded), size)
        tails = self._tails(first_block, len(contents), extras)
        bodies = [
            header + join(encoded[start : start + size]) + tail
            for start, tail in zip(starts, tails, strict=True)
        ]
        return self._function.link(self._head, parent, bodies)

    def _tails(self, first_block: int, num_blocks: int, extras: Mapping[int, BlockExtras]) -> list[bytes]:
        """Return the encoded extras of each block; most of them are the same."""
        tails = [_encode_extras(self._adapter)] * num_blocks
        special = {0, *extras} if first_block == 0 else extras
        for index in special:
            extra = extras.get(index, BlockExtras())
            media = [(item.identifier, item.offset) for item in extra.media]
            salt = self._salt if index == 0 else []
            embeds = [] if extra.embeds_digest is None else [extra.embeds_digest]
            tails[index - first_block] = _encode_extras([*self._adapter, *media, *salt, *embeds])
        return tails


def _encode_extras(extras: Sequence[cbor.CborValue]) -> bytes:
    return cbor.encode(extras or None)


def _salt_slot(namespace: Namespace) -> list[str]:
    """Return what stands for the salts: the client's text, unless there is a tenant to be kept apart."""
    if namespace.tenant_salt is not None:
        return [_SALT_PREFIX + sha256(namespace.encode_salts()).hexdigest()]
    return [] if namespace.cache_salt is None else [namespace.cache_salt]


def _unpack_tokens(packed: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(packed) // TOKEN_BYTES}I", packed)
