"""Which cached pages continue the same prefix, and which of them begins most like a given run of tokens.

The pages behind one digest are kept sorted by content: the one that shares most leading tokens with a query
stands beside the query's own place, so a search costs two comparisons after a bisection.
"""

from bisect import bisect_left, insort
from operator import attrgetter
from typing import NamedTuple

from anaphora.cache.hashing import TOKEN_BYTES, BlockDigest
from anaphora.cache.page import Block

_content = attrgetter("content")


class Match(NamedTuple):
    """A block whose page begins with `num_tokens` of the tokens asked for."""

    block: Block
    num_tokens: int


class Siblings:
    """Indexed blocks of plain text by the digest of all that stands before their page."""

    __slots__ = ("_behind",)

    def __init__(self) -> None:
        # Most prefixes go on in one way only, which needs no list.
        self._behind: dict[BlockDigest, Block | list[Block]] = {}

    def add(self, block: Block) -> None:
        """Take in a block that was indexed; one with extras is no mere run of tokens and is left out."""
        others = self._behind.setdefault(block.parent, block)
        if others is block:
            return
        if isinstance(others, Block):
            others = self._behind[block.parent] = [others]
        insort(others, block, key=_content)

    def remove(self, block: Block) -> None:
        """Let a block go that is indexed no longer."""
        siblings = self._behind[block.parent]
        if siblings is block:
            del self._behind[block.parent]
            return
        assert isinstance(siblings, list), f"{block} has left already"
        at = bisect_left(siblings, block.content, key=_content)
        while siblings[at] is not block:  # another page may hold the same tokens
            at += 1
        del siblings[at]
        if len(siblings) == 1:
            self._behind[block.parent] = siblings[0]

    def clear(self) -> None:
        """Let all go."""
        self._behind.clear()

    def best(self, parent: BlockDigest, tokens: bytes) -> Match | None:
        """Return the block behind `parent` that shares most leading tokens with packed `tokens`, or None."""
        siblings = self._behind.get(parent, [])
        if isinstance(siblings, Block):
            siblings = [siblings]
        at = bisect_left(siblings, tokens, key=_content)
        found = [
            Match(block, common_tokens(block.content, tokens)) for block in siblings[max(0, at - 1) : at + 1]
        ]
        best = max(found, key=lambda match: match.num_tokens, default=None)
        return best if best and best.num_tokens else None


def common_tokens(one: bytes, other: bytes) -> int:
    """Return how many leading tokens two packed runs share."""
    shorter = min(len(one), len(other)) // TOKEN_BYTES
    # The lowest bit that differs lies in the first token that differs.
    difference = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    if not difference:
        return shorter
    lowest_bit = (difference & -difference).bit_length() - 1
    return min(shorter, lowest_bit // (8 * TOKEN_BYTES))
