"""How many blocks of a sequence may be reused at most: arithmetic, without a cache."""


def max_hit_blocks(
    num_tokens: int, num_prefill_tokens: int, *, block_size: int, min_prefill_tokens: int = 1
) -> int:
    """Return the most whole blocks that a sequence may take from the cache.

    Its last token is always computed, and so is at least a prefill of `min_prefill_tokens`: where less would
    remain of the first `num_prefill_tokens`, one block is given back.
    """
    blocks = min(num_tokens - 1, num_prefill_tokens) // block_size
    rest = num_prefill_tokens - blocks * block_size
    is_rest_too_short = 0 < rest < min_prefill_tokens
    return max(0, blocks - 1) if is_rest_too_short else max(0, blocks)
