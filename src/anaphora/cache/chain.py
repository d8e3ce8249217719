"""The digests of one token sequence's full blocks, computed once each as the sequence grows.

Knows nothing of pages: whether a block is stored anywhere is the index's business.
"""

import sys
from array import array
from collections.abc import Sequence

from anaphora.cache.hashing import TOKEN_BYTES, BlockDigest, Namespace, chain_hasher, root_digest
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

    `contents[i]` is the packed tokens of block i, kept to be compared on a hit.
    """

    __slots__ = ("_digest_blocks", "_tail", "block_size", "contents", "digests", "namespace", "num_tokens")

    def __init__(self, namespace: Namespace, block_size: int, token_ids: Sequence[TokenId] = ()) -> None:
        self.block_size = block_size
        self.namespace = namespace.encode()
        self.digests: list[BlockDigest] = []
        self.contents: list[bytes] = []
        self.num_tokens = 0
        self._tail = b""
        self._digest_blocks = chain_hasher(block_size)
        self.extend(token_ids)

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Append tokens and hash every block they complete."""
        packed = self._tail + pack_tokens(token_ids)
        size = self.block_size * TOKEN_BYTES
        end = len(packed) - len(packed) % size
        parent = self.digests[-1] if self.digests else root_digest(self.namespace)
        contents = [packed[start : start + size] for start in range(0, end, size)]
        self.digests += self._digest_blocks(parent, contents)
        self.contents += contents
        self._tail = packed[end:]
        self.num_tokens += len(token_ids)

    def content(self, start_block: int, end_block: int) -> bytes:
        """Return the packed tokens of blocks `start_block` up to, not including, `end_block`."""
        if end_block - start_block == 1:
            return self.contents[start_block]
        return b"".join(self.contents[start_block:end_block])


class UnhashedChain(BlockChain):
    """The chain of a sequence that is never looked up nor published: prefix caching is off."""

    __slots__ = ()

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Count the tokens and hash nothing."""
        self.num_tokens += len(token_ids)
