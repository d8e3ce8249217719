"""What a block depends on besides its tokens: images and sounds, and prompt embeddings.

Knows nothing of tensors or files: media come as identifiers, embeddings as bytes.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate

from anaphora.cache.fields import (
    CLIENT_ID_TAG,
    CONTENT_ID_TAG,
    EMBEDS_TAG,
    MEDIA_TAG,
    OFFSET_TAG,
    encode_field,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaItem:
    """An image or a sound of a prompt: which one, and the tokens it takes the place of.

    `identifier` is the hex digest of the whole content, or an id that the client chose.
    """

    identifier: str
    offset: int
    num_tokens: int
    is_client_given: bool = False

    @property
    def end(self) -> int:
        """The first token behind it."""
        return self.offset + self.num_tokens


@dataclass(frozen=True, slots=True)
class MediaExtra:
    """A media item as one block sees it: `offset` counts from the block's first token and may be negative."""

    identifier: str
    offset: int
    is_client_given: bool = False

    def encode(self) -> bytes:
        """Return the item as one field of encoding v1."""
        tag = CLIENT_ID_TAG if self.is_client_given else CONTENT_ID_TAG
        offset = encode_field(OFFSET_TAG, struct.pack("<q", self.offset))
        return encode_field(MEDIA_TAG, encode_field(tag, self.identifier.encode()) + offset)


@dataclass(frozen=True, slots=True)
class BlockExtras:
    """Everything one block depends on besides its tokens, the media in prompt order."""

    media: tuple[MediaExtra, ...] = ()
    embeds_digest: bytes | None = None

    def encode(self) -> bytes:
        """Return the extras as fields of encoding v1; equal bytes mean equal extras."""
        embeds = b"" if self.embeds_digest is None else encode_field(EMBEDS_TAG, self.embeds_digest)
        return b"".join(item.encode() for item in self.media) + embeds


class PromptEmbeds:
    """Embeddings given in place of token ids: `rows` is the bytes of all rows, one after another.

    A block behind the last row has the digest of no bytes: every block of such a sequence carries one.
    """

    def __init__(self, rows: bytes, row_size_bytes: int) -> None:
        self._rows = memoryview(rows)
        self._row_size_bytes = row_size_bytes
        self._digests: dict[tuple[int, int], bytes] = {}

    def digest(self, start: int, end: int) -> bytes:
        """Return the SHA-256 of the rows `[start, end)`; remembered, so that no row is read twice."""
        known = self._digests.get((start, end))
        if known is None:
            size = self._row_size_bytes
            known = sha256(self._rows[start * size : end * size]).digest()
            self._digests[start, end] = known
        return known


class PromptExtras:
    """The media and embeddings of one prompt, asked block by block.

    The answer depends on the range alone, never on which blocks were asked for before.
    """

    def __init__(self, media: Sequence[MediaItem] = (), embeds: PromptEmbeds | None = None) -> None:
        self._media = sorted(media, key=lambda item: item.offset)
        # Items may overlap (sound inside a film), so ends alone need not ascend; their maxima so far do.
        self._ends = list(accumulate((item.end for item in self._media), max))
        self._embeds = embeds

    def of_block(self, start: int, end: int) -> BlockExtras | None:
        """Return the extras of the block of tokens `[start, end)`, or None for plain text."""
        media = []
        for item in self._media[bisect_right(self._ends, start) :]:
            if item.offset >= end:
                break
            if item.end > start:
                media.append(MediaExtra(item.identifier, item.offset - start, item.is_client_given))
        embeds_digest = None if self._embeds is None else self._embeds.digest(start, end)
        return None if not media and embeds_digest is None else BlockExtras(tuple(media), embeds_digest)
