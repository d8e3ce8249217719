"""A chain whose digests are known beforehand: those of a trace."""

from collections.abc import Sequence

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import BlockDigest
from anaphora.ids import TokenId

NO_PARENT = BlockDigest(b"")


class IdChain(BlockChain):
    """Stands in for a BlockChain: nothing is hashed, and a block's digest is also its content.

    That is enough for whole blocks, since equal digests mean equal prefixes here. It knows no tokens, so that nothing
    less than a block is ever found alike. `digests` may reach past the tokens: what is to come is known as well.
    """

    __slots__ = ()

    def __init__(self, block_size: int, digests: list[BlockDigest], num_tokens: int) -> None:
        self.block_size = block_size
        self.namespace = b""
        self.extras = None
        self.root = NO_PARENT
        self.num_tokens = num_tokens
        self._digests = digests
        self._block_extras = {}
        self._tail = b""
        self.contents = [*digests[: num_tokens // block_size]]

    def extend(self, token_ids: Sequence[TokenId]) -> None:
        """Count the tokens; only how many they are matters."""
        if not token_ids:
            return
        self.num_tokens += len(token_ids)
        self.contents += self._digests[len(self.contents) : self.num_tokens // self.block_size]

    def digests_until(self, end_block: int) -> Sequence[BlockDigest]:
        """Return all digests."""
        return self._digests

    def adopt(self, start_block: int, digests: Sequence[BlockDigest]) -> None:
        """Do nothing: all digests are known."""

    def packed_tokens(self, start_block: int, num_tokens: int) -> bytes:
        """Return nothing: the tokens are not known."""
        return b""
