"""What the log says from time to time of a server at work: vLLM's figures in vLLM's words."""

from anaphora.metrics.counters import MetricsSnapshot


def stats_line(before: MetricsSnapshot, after: MetricsSnapshot, seconds: float) -> str | None:
    """Return one line on the `seconds` between two snapshots, or None if nothing was computed and nobody waits.

    Throughput is in tokens of these seconds, prompts without what was cached; the hit rate is that of the last
    1,000 requests, in tokens.
    """
    prompt = after.prompt_tokens_computed - before.prompt_tokens_computed
    generation = after.generation_tokens - before.generation_tokens
    running, waiting = after.requests.running, after.requests.waiting
    if not (prompt or generation or running or waiting):
        return None
    return ", ".join(
        [
            f"Avg prompt throughput: {prompt / seconds:.1f} tokens/s",
            f"Avg generation throughput: {generation / seconds:.1f} tokens/s",
            f"Running: {running} reqs",
            f"Waiting: {waiting} reqs",
            f"KV cache usage: {after.page_usage:.1%}",
            f"Prefix cache hit rate: {after.prefix_cache_hit_rate:.1%}",
        ]
    )
