"""From a digest to the one block that holds it.

Knows nothing of references or of the free order.
"""

from collections.abc import Iterator

from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Block


class PrefixIndex:
    """A flat map; each digest is indexed at most once.

    `version` grows with every change, so that an answer can be remembered together with it.
    """

    __slots__ = ("_blocks", "version")

    def __init__(self) -> None:
        self._blocks: dict[BlockDigest, Block] = {}
        self.version = 0

    def __len__(self) -> int:
        """Return the number of indexed blocks."""
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        """Yield every indexed block."""
        return iter(self._blocks.values())

    def get(self, digest: BlockDigest) -> Block | None:
        """Return the block indexed under a digest, its content not yet compared."""
        return self._blocks.get(digest)

    def add(self, block: Block) -> Block:
        """Index a block unless its digest is indexed already; return the block that is indexed now."""
        indexed = self._blocks.setdefault(block.digest, block)
        if indexed is block:
            self.version += 1
        return indexed

    def remove(self, block: Block) -> bool:
        """Forget a block; False, with nothing changed, when another block stands under its digest."""
        if self._blocks.get(block.digest) is not block:
            return False
        del self._blocks[block.digest]
        self.version += 1
        return True

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()
        self.version += 1
