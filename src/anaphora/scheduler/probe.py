"""What a prompt would find in the cache if it came now."""

from typing import NamedTuple


class Probe(NamedTuple):
    """How many tokens of a prompt are cached, how many could be at the most, and in what units."""

    cached_tokens: int
    best_possible_reuse: int
    block_size: int
