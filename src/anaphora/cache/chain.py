"""The digests of one token sequence's full blocks, computed once each as the sequence grows.

Knows nothing of pages: whether a block is stored anywhere is the index's business.
"""

import copy
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence

from anaphora.cache.extras import BlockExtras, PromptExtras
from anaphora.cache.hashing import SHA256, TOKEN_BYTES, BlockDigest, HashAlgorithm, Namespace
from anaphora.ids import TokenId

_U32 = next(code for code in "IL" if array(code).itemsize == TOKEN_BYTES)


def pack_tokens(token_ids: Sequence[TokenId]) -> bytes:
    """Return the ids as u32 little-endian, one after another."""
    packed = array(_U32, token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


class BlockChain:
    """The chain of one sequence: `digests[i]` covers everything up to the end of block i.

    `contents[i]` is what is compared on a hit: the packed tokens of block i and, behind them, its extras if it
    has any. `extras` is what the sequence depends on besides its tokens.
    """

    __slots__ = (
        "_encoded_extras",
        "_hasher",
        "_tail",
        "block_size",
        "contents",
        "digests",
        "extras",
        "namespace",
        "num_tokens",
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
        self.digests: list[BlockDigest] = []
        self.contents: list[bytes] = []
        self.num_tokens = 0
        self._encoded_extras: dict[int, bytes] = {}
        self._tail = b""
        self._hasher = algorithm.hasher(namespace, block_size)
        self.extend(token_ids)

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Append tokens and hash every block they complete."""
        packed = self._tail + pack_tokens(token_ids)
        size = self.block_size * TOKEN_BYTES
        end = len(packed) - len(packed) % size
        if end:
            self._add_blocks([packed[start : start + size] for start in range(0, end, size)])
        self._tail = packed[end:]
        self.num_tokens += len(token_ids)

    def copy(self) -> "BlockChain":
        """Return a chain of the same tokens that grows on its own."""
        twin = copy.copy(self)
        twin.digests, twin.contents = self.digests.copy(), self.contents.copy()
        twin._encoded_extras = self._encoded_extras.copy()  # noqa: SLF001 - its own class
        return twin

    def _add_blocks(self, contents: list[bytes]) -> None:
        first = len(self.digests)
        parent = self.digests[-1] if self.digests else self._hasher.root
        extras = self._extras_of(first, first + len(contents)) if self.extras else {}
        self.digests += self._hasher.digests(parent, first, contents, extras)
        self.contents += contents
        for index, extra in extras.items():
            self._encoded_extras[index] = extra.encode()
            self.contents[index] += self._sealed_extras(index, index + 1)

    def _extras_of(self, start_block: int, end_block: int) -> Mapping[int, BlockExtras]:
        assert self.extras is not None, "plain text has no extras"
        size, of_block = self.block_size, self.extras.of_block
        found = {index: of_block(index * size, (index + 1) * size) for index in range(start_block, end_block)}
        return {index: extra for index, extra in found.items() if extra is not None}

    def content(self, start_block: int, end_block: int) -> bytes:
        """Return the packed tokens, then the extras, of blocks `start_block` up to, not including, `end_block`.

        No two runs that differ in tokens, in extras or in which block has them give the same bytes.
        """
        if end_block - start_block == 1:
            return self.contents[start_block]
        run = self.contents[start_block:end_block]
        if not self._encoded_extras:
            return b"".join(run)
        size = self.block_size * TOKEN_BYTES
        return b"".join(content[:size] for content in run) + self._sealed_extras(start_block, end_block)

    def _sealed_extras(self, start_block: int, end_block: int) -> bytes:
        """Return what stands behind the tokens of a run; nothing when no block of it has extras.

        | tokens, 4 bytes each | (length, extras) of each block | zeros to a multiple of 4 | number of blocks, 1 |

        Five bytes at the end: a length that is no multiple of 4 tells it from tokens alone.
        """
        extras = [self._encoded_extras.get(index, b"") for index in range(start_block, end_block)]
        if not any(extras):
            return b""
        body = b"".join(struct.pack("<I", len(extra)) + extra for extra in extras)
        return body + bytes(-len(body) % TOKEN_BYTES) + struct.pack("<IB", len(extras), 1)


class UnhashedChain(BlockChain):
    """The chain of a sequence that is never looked up nor published: prefix caching is off."""

    __slots__ = ()

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Count the tokens and hash nothing."""
        self.num_tokens += len(token_ids)
