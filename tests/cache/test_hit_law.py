"""How much may be reused at most."""

import pytest

from anaphora.cache.hit_law import max_hit_blocks


@pytest.mark.parametrize(
    ("num_tokens", "least", "blocks"),
    [(1, 1, 0), (16, 1, 0), (17, 1, 1), (48, 1, 2), (49, 1, 3), (49, 2, 2), (50, 2, 3), (17, 2, 0)],
)
def test_the_last_token_and_the_shortest_prefill_are_left(num_tokens: int, least: int, blocks: int) -> None:
    """Of blocks of 16; `least` is the shortest prefill."""
    assert max_hit_blocks(num_tokens, num_tokens, block_size=16, min_prefill_tokens=least) == blocks
