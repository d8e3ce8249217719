"""The digests of one token sequence's full blocks, computed once each at most.

Knows nothing of pages: whether a block is stored anywhere is the index's business.
"""

import sys
from array import array
from collections.abc import Sequence
from struct import iter_unpack

from anaphora.cache.hashing import TOKEN_BYTES, BlockDigest, Namespace, chain_hasher, root_digest
from anaphora.ids import TokenId

_U32 = next(code for code in "IL" if array(code).itemsize == TOKEN_BYTES)


def pack_tokens(token_ids: Sequence[TokenId]) -> bytes:
    """Return the ids as u32 little-endian, one after another."""
    packed = array(_U32)
    packed.fromlist(token_ids if isinstance(token_ids, list) else list(token_ids))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


class BlockChain:
    """The chain of one sequence: `digests[i]` covers everything up to the end of block i.

    `contents[i]` is the packed tokens of block i, kept to be compared on a hit.
    A digest is hashed when it is first asked for, or taken from a block of the same content and parent.
    """

    __slots__ = (
        "_digest_blocks",
        "_digests",
        "_tail",
        "block_size",
        "contents",
        "namespace",
        "num_tokens",
        "root",
    )

    def __init__(self, namespace: Namespace, block_size: int, token_ids: Sequence[TokenId] = ()) -> None:
        self.block_size = block_size
        self.namespace = namespace.encode()
        self.root = root_digest(self.namespace)
        self.contents: list[bytes] = []
        self.num_tokens = 0
        self._digests: list[BlockDigest] = []
        self._tail = b""
        self._digest_blocks = chain_hasher(block_size)
        self.extend(token_ids)

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Append tokens."""
        packed = self._tail + pack_tokens(token_ids)
        size = self.block_size * TOKEN_BYTES
        end = len(packed) - len(packed) % size
        self.contents += [content for (content,) in iter_unpack(f"{size}s", packed[:end])]
        self._tail = packed[end:]
        self.num_tokens += len(token_ids)

    @property
    def digests(self) -> Sequence[BlockDigest]:
        """The digests of all full blocks."""
        return self.digests_until(len(self.contents))

    def digests_until(self, end_block: int) -> Sequence[BlockDigest]:
        """Return the digests of at least the blocks before `end_block`, hashing no others."""
        digests = self._digests
        if end_block > len(digests):
            parent = digests[-1] if digests else self.root
            digests += self._digest_blocks(parent, self.contents[len(digests) : end_block])
        return digests

    @property
    def num_known_digests(self) -> int:
        """How many digests need not be hashed any more."""
        return len(self._digests)

    def adopt(self, start_block: int, digests: Sequence[BlockDigest]) -> None:
        """Take over digests, from block `start_block` on, of blocks with the same parents and contents."""
        self._digests += digests[len(self._digests) - start_block :]

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
