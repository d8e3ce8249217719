"""The fields of encoding v1: the one place where its tags stand.

A field is `tag (1 byte) ‖ length (u32 little-endian) ‖ body`, fields in ascending tag order, absent fields
left out. A tag is never reused and any change makes a v2, so that two processes and two versions agree on
every digest.
"""

import struct

VERSION_TAG = 0x00

MODEL_TAG, ADAPTER_TAG, TENANT_SALT_TAG, CACHE_SALT_TAG, SEED_TAG = 0x01, 0x02, 0x03, 0x04, 0x05
PARENT_TAG, TOKENS_TAG, MEDIA_TAG, EMBEDS_TAG = 0x10, 0x11, 0x12, 0x13

# Inside the body of a media field.
CONTENT_ID_TAG, CLIENT_ID_TAG, OFFSET_TAG = 0x01, 0x02, 0x03

ROOT_VERSION = b"anaphora.root.v1"
BLOCK_VERSION = b"anaphora.block.v1"


def field_header(tag: int, num_bytes: int) -> bytes:
    """Return what stands before a body of that length."""
    return struct.pack("<BI", tag, num_bytes)


def encode_field(tag: int, body: bytes) -> bytes:
    """Return one tagged, length-prefixed field."""
    return field_header(tag, len(body)) + body
