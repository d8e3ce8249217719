"""Digests of blocks and of namespaces, in the canonical encoding v1.

A field is `tag (1 byte) ‖ length (u32 little-endian) ‖ body`, fields in ascending tag order, absent fields
left out. A tag is never reused and any change makes a v2, so that two processes and two versions agree on
every digest. Knows nothing of pages or requests.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NewType, cast

BlockDigest = NewType("BlockDigest", bytes)

DIGEST_BYTES = 32
TOKEN_BYTES = 4

_VERSION_TAG = 0x00
_MODEL_TAG, _ADAPTER_TAG, _TENANT_SALT_TAG, _CACHE_SALT_TAG = 0x01, 0x02, 0x03, 0x04
_PARENT_TAG, _TOKENS_TAG, _MEDIA_TAG, _EMBEDS_TAG = 0x10, 0x11, 0x12, 0x13
_CONTENT_ID_TAG, _CLIENT_ID_TAG, _OFFSET_TAG = 0x01, 0x02, 0x03


def encode_field(tag: int, body: bytes) -> bytes:
    """Return one tagged, length-prefixed field."""
    return struct.pack("<BI", tag, len(body)) + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What must be equal, besides tokens, for K/V to be shared.

    `model_fingerprint` covers weights, tokenizer, K/V precision and layout. `adapter_digest` is that of the
    adapter's content, never its name. `tenant_salt` comes from the server, `cache_salt` from the client.
    """

    model_fingerprint: bytes
    adapter_digest: bytes | None = None
    tenant_salt: bytes | None = None
    cache_salt: str | None = None

    def encode(self) -> bytes:
        """Return the fields of the root digest; equal bytes mean the same namespace."""
        salt = None if self.cache_salt is None else self.cache_salt.encode()
        fields = [
            (_VERSION_TAG, b"anaphora.root.v1"),
            (_MODEL_TAG, self.model_fingerprint),
            (_ADAPTER_TAG, self.adapter_digest),
            (_TENANT_SALT_TAG, self.tenant_salt),
            (_CACHE_SALT_TAG, salt),
        ]
        return b"".join(encode_field(tag, body) for tag, body in fields if body is not None)


def root_digest(namespace: bytes) -> BlockDigest:
    """Return the parent of block 0 under an encoded namespace."""
    return BlockDigest(sha256(namespace).digest())


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One image or sound inside a block: its digest or client-given id, and where it starts.

    `offset` is relative to the block's first token and may be negative.
    """

    identifier: bytes
    offset: int
    is_client_given: bool = False

    def encode(self) -> bytes:
        """Return the item as one block field."""
        tag = _CLIENT_ID_TAG if self.is_client_given else _CONTENT_ID_TAG
        body = encode_field(tag, self.identifier) + encode_field(_OFFSET_TAG, struct.pack("<q", self.offset))
        return encode_field(_MEDIA_TAG, body)


def encode_extra(media: Sequence[MediaItem] = (), embeds_digest: bytes | None = None) -> bytes:
    """Return what a block depends on besides its tokens; empty for plain text."""
    embeds = b"" if embeds_digest is None else encode_field(_EMBEDS_TAG, embeds_digest)
    return b"".join(item.encode() for item in media) + embeds


def chain_hasher(block_size: int) -> Callable[[BlockDigest, Iterable[bytes]], list[BlockDigest]]:
    """Return `digest_blocks(parent, contents)`: the digests of consecutive blocks, each the next one's parent.

    One content is `block_size` ids, each u32 little-endian, then what `encode_extra` gave for the block.
    All lengths but that of the extra are fixed, so the field headers are made once, and what every block
    begins with is hashed once: this is the hot loop.
    """
    head = encode_field(_VERSION_TAG, b"anaphora.block.v1") + struct.pack("<BI", _PARENT_TAG, DIGEST_BYTES)
    middle = struct.pack("<BI", _TOKENS_TAG, block_size * TOKEN_BYTES)
    begin = sha256(head).copy

    def digest_blocks(parent: BlockDigest, contents: Iterable[bytes]) -> list[BlockDigest]:
        digest: bytes = parent
        digests = []
        for content in contents:
            state = begin()
            state.update(digest + middle + content)
            digest = state.digest()
            digests.append(digest)
        return cast(list[BlockDigest], digests)  # one cast, since calling BlockDigest costs 30 ns

    return digest_blocks


def block_hasher(block_size: int) -> Callable[[BlockDigest, bytes, bytes], BlockDigest]:
    """Return `digest_block(parent, tokens, extra)` for blocks of one size."""
    digest_blocks = chain_hasher(block_size)

    def digest_block(parent: BlockDigest, tokens: bytes, extra: bytes) -> BlockDigest:
        return digest_blocks(parent, [tokens + extra])[0]

    return digest_block
