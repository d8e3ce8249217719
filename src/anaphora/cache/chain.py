"""The digests of one token sequence's full blocks, computed once each at most.

Knows nothing of pages: whether a block is stored anywhere is the index's business.
"""

import copy
import struct
import sys
from array import array
from collections.abc import Sequence
from struct import iter_unpack

from anaphora.cache.extras import BlockExtras, PromptExtras
from anaphora.cache.hashing import SHA256, TOKEN_BYTES, BlockDigest, HashAlgorithm, Namespace
from anaphora.ids import TokenId

_U32 = next(code for code in "IL" if array(code).itemsize == TOKEN_BYTES)


def pack_tokens(token_ids: Sequence[TokenId]) -> bytes:
    """Return the ids as u32 little-endian, one after another."""
    packed = array(_U32)
    packed.fromlist(token_ids if isinstance(token_ids, list) else list(token_ids))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_tokens(packed: bytes) -> list[TokenId]:
    """Return the ids that `pack_tokens` packed."""
    token_ids = array(_U32, packed)
    if sys.byteorder == "big":
        token_ids.byteswap()
    return token_ids.tolist()


class BlockChain:
    """The chain of one sequence: `digests[i]` covers everything up to the end of block i.

    `contents[i]` is what is compared on a hit: the packed tokens of block i and, behind them, its extras if it
    has any. `extras` is what the sequence depends on besides its tokens. `root` is the parent of block 0.
    A digest is hashed when it is first asked for, or taken from a block of the same content and parent.
    """

    __slots__ = (
        "_block_extras",
        "_digests",
        "_hasher",
        "_tail",
        "block_size",
        "contents",
        "extras",
        "namespace",
        "num_tokens",
        "root",
    )

    def __init__(
        self,
        namespace: Namespace,
        block_size: int,
        token_ids: Sequence[TokenId] = (),
        *,
        algorithm: HashAlgorithm = SHA256,
        extras: PromptExtras | None = None,
    ) -> None:
        self.block_size = block_size
        self.namespace = namespace.encode()
        self.extras = extras
        self.contents: list[bytes] = []
        self.num_tokens = 0
        self._digests: list[BlockDigest] = []
        self._block_extras: dict[int, BlockExtras] = {}
        self._tail = b""
        self._hasher = algorithm.hasher(namespace, block_size)
        self.root = self._hasher.root
        self.extend(token_ids)

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Append tokens."""
        packed = self._tail + pack_tokens(token_ids)
        size = self.block_size * TOKEN_BYTES
        end = len(packed) - len(packed) % size
        first = len(self.contents)
        self.contents += [content for (content,) in iter_unpack(f"{size}s", packed[:end])]
        self._tail = packed[end:]
        self.num_tokens += len(token_ids)
        if self.extras:
            self._add_extras(self.extras, first)

    def _add_extras(self, extras: PromptExtras, first_block: int) -> None:
        size = self.block_size
        for index in range(first_block, len(self.contents)):
            if extra := extras.of_block(index * size, (index + 1) * size):
                self._block_extras[index] = extra
                self.contents[index] += self._sealed_extras(index, index + 1)

    @property
    def digests(self) -> Sequence[BlockDigest]:
        """The digests of all full blocks."""
        return self.digests_until(len(self.contents))

    def digests_until(self, end_block: int) -> Sequence[BlockDigest]:
        """Return the digests of at least the blocks before `end_block`, hashing no others."""
        digests = self._digests
        if end_block > len(digests):
            first = len(digests)
            parent = digests[-1] if digests else self.root
            digests += self._hasher.digests(parent, first, *self._to_hash(first, end_block))
        return digests

    def _to_hash(self, first_block: int, end_block: int) -> tuple[list[bytes], dict[int, BlockExtras]]:
        """Return the packed tokens of some blocks, and the extras of those that have any."""
        contents = self.contents[first_block:end_block]
        if not self._block_extras:
            return contents, {}
        extras = {index: e for index, e in self._block_extras.items() if first_block <= index < end_block}
        size = self.block_size * TOKEN_BYTES
        return [content[:size] for content in contents], extras

    @property
    def num_known_digests(self) -> int:
        """How many digests need not be hashed any more."""
        return len(self._digests)

    def adopt(self, start_block: int, digests: Sequence[BlockDigest]) -> None:
        """Take over digests, from block `start_block` on, of blocks with the same parents and contents."""
        self._digests += digests[len(self._digests) - start_block :]

    def copy(self) -> "BlockChain":
        """Return a chain of the same tokens that grows on its own."""
        twin = copy.copy(self)
        twin._share_nothing()  # noqa: SLF001 - its own class
        return twin

    def _share_nothing(self) -> None:
        self.contents, self._digests = self.contents.copy(), self._digests.copy()
        self._block_extras = self._block_extras.copy()

    def packed_tokens(self, start_block: int, num_tokens: int) -> bytes:
        """Return up to `num_tokens` packed tokens from the beginning of a block on, the last partial block included."""
        size = self.block_size * TOKEN_BYTES
        end_block = start_block + -(-num_tokens // self.block_size)
        run = b"".join(content[:size] for content in self.contents[start_block:end_block])
        return (run if end_block <= len(self.contents) else run + self._tail)[: num_tokens * TOKEN_BYTES]

    def content(self, start_block: int, end_block: int) -> bytes:
        """Return the packed tokens, then the extras, of blocks `start_block` up to, not including, `end_block`.

        No two runs that differ in tokens, in extras or in which block has them give the same bytes.
        """
        if end_block - start_block == 1:
            return self.contents[start_block]
        run = self.contents[start_block:end_block]
        if not self._block_extras:
            return b"".join(run)
        size = self.block_size * TOKEN_BYTES
        return b"".join(content[:size] for content in run) + self._sealed_extras(start_block, end_block)

    def _sealed_extras(self, start_block: int, end_block: int) -> bytes:
        """Return what stands behind the tokens of a run; nothing when no block of it has extras.

        | tokens, 4 bytes each | (length, extras) of each block | zeros to a multiple of 4 | number of blocks, 1 |

        Five bytes at the end: a length that is no multiple of 4 tells it from tokens alone.
        """
        found = [self._block_extras.get(index) for index in range(start_block, end_block)]
        if not any(found):
            return b""
        extras = [extra.encode() if extra else b"" for extra in found]
        body = b"".join(struct.pack("<I", len(extra)) + extra for extra in extras)
        return body + bytes(-len(body) % TOKEN_BYTES) + struct.pack("<IB", len(extras), 1)


class UnhashedChain(BlockChain):
    """The chain of a sequence that is never looked up nor published: prefix caching is off."""

    __slots__ = ()

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Count the tokens and hash nothing."""
        self.num_tokens += len(token_ids)
