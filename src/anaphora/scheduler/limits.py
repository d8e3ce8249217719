"""What can never work: refused when the engine starts, or when a request arrives."""

from anaphora.cache.manager import KVManager
from anaphora.config import SchedulerConfig
from anaphora.errors import ConfigError, ContextLengthError, NotEnoughMemoryError


def check_model_len_fits(max_model_len: int, manager: KVManager) -> None:
    """Raise NotEnoughMemoryError unless one request of full length fits into the pool beside all pins."""
    num_pages, usable = manager.num_pages_for(max_model_len), manager.pool.num_unpinnable_pages
    if num_pages > usable:
        raise NotEnoughMemoryError(
            f"one request of --max-model-len {max_model_len} tokens needs {num_pages} pages of K/V, "
            f"but the pool has {usable}; lower --max-model-len to {usable * manager.layout.page_size} "
            "or raise --kv-cache-memory-bytes"
        )


def check_budget(config: SchedulerConfig, min_prefill_tokens: int) -> None:
    """Raise ConfigError unless a prefill makes progress in every step, even beside as many decodes as may run.

    A prompt of `2 · min_prefill_tokens - 1` tokens can neither be cut in two nor computed with less room.
    """
    least = 2 * min_prefill_tokens - 1
    needed = config.max_num_seqs - 1 + least
    if config.max_num_batched_tokens < needed:
        raise ConfigError(
            f"--max-num-batched-tokens is {config.max_num_batched_tokens}, but must be at least {needed}: one token "
            f"for each of --max-num-seqs {config.max_num_seqs} but one, and {least} for a prefill"
        )
    if 0 < config.long_prefill_token_threshold < least:
        raise ConfigError(
            f"--long-prefill-token-threshold is {config.long_prefill_token_threshold}, "
            f"but must be 0 or at least {least} for this runner"
        )


def check_can_fit(num_prompt_tokens: int, max_tokens: int | None, max_model_len: int) -> None:
    """Raise ContextLengthError for a prompt and outputs that could never run to their end.

    `max_tokens` None means the rest of the context, which must hold one at least. That the pool can hold a request
    of full length was made sure of at the start.
    """
    num_outputs = max(1, max_model_len - num_prompt_tokens) if max_tokens is None else max_tokens
    if num_prompt_tokens + num_outputs > max_model_len:
        raise context_length_error(num_prompt_tokens, max_tokens, max_model_len)


def context_length_error(
    num_prompt_tokens: int, max_tokens: int | None, max_model_len: int
) -> ContextLengthError:
    """Return the error for a prompt that does not fit, with all three numbers and the remedy."""
    if max_tokens == 0:
        return ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens, but the context is {max_model_len}; "
            "shorten the prompt or raise --max-model-len"
        )
    if num_prompt_tokens >= max_model_len:
        return ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens, but the context is {max_model_len} and must also hold "
            f"at least one output token; shorten the prompt or raise --max-model-len"
        )
    total = num_prompt_tokens + (max_tokens or 1)
    return ContextLengthError(
        f"the prompt has {num_prompt_tokens} tokens and max_tokens is {max_tokens}, together {total}, "
        f"but the context is {max_model_len}; shorten the prompt, lower max_tokens to "
        f"{max_model_len - num_prompt_tokens}, or raise --max-model-len",
        param="max_tokens",
    )
