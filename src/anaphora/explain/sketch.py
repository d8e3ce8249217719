"""Sketches of token sequences, by which those with much in common are found wherever it stands.

A sketch holds the smallest hashes of short runs of tokens, taken where the tokens themselves say so: what two
sequences share gives the same hashes in both, whatever stands before it (Broder 1997, bottom-k sketches).
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import nsmallest
from zlib import crc32

from anaphora.cache.hashing import TOKEN_BYTES

Sketch = tuple[int, ...]

HASH_BYTES = 250
"""What a hash in a sketch costs together with its entry in an index, roughly."""

_RUN_TOKENS = 8
_SKETCH_SIZE = 16
_LATEST = 4


def sketch_of(packed: bytes) -> Sketch:
    """Return the sketch of packed tokens; empty for a sequence shorter than a run."""
    size, step = _RUN_TOKENS * TOKEN_BYTES, TOKEN_BYTES
    hashes = {
        crc32(packed[start : start + size])
        for start in range(0, len(packed) - size + 1, step)
        # A token's lowest byte decides, so one run in eight is hashed, the same ones wherever they stand.
        if not packed[start] & 7
    }
    return tuple(nsmallest(_SKETCH_SIZE, hashes))


class SketchIndex:
    """Finds the numbered sequences whose sketches have most in common with a sketch."""

    def __init__(self) -> None:
        self._numbers: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, number: int, sketch: Sketch) -> None:
        """Add a sequence; for each hash only the latest few are kept."""
        for value in sketch:
            numbers = self._numbers[value]
            numbers.append(number)
            del numbers[:-_LATEST]

    def remove(self, number: int, sketch: Sketch) -> None:
        """Remove a sequence."""
        for value in sketch:
            numbers = self._numbers.get(value, [])
            if number in numbers:
                numbers.remove(number)
            if not numbers:
                self._numbers.pop(value, None)

    def best(self, sketch: Sequence[int], limit: int) -> list[int]:
        """Return up to `limit` numbers, those with the most hashes in common first, the latest among equals."""
        votes = Counter(number for value in sketch for number in self._numbers.get(value, ()))
        return sorted(votes, key=lambda number: (votes[number], number), reverse=True)[:limit]
