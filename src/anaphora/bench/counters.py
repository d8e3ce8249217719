"""What a server counts by itself: its Prometheus text, in the names of several servers.

Knows the names; how the text was fetched is not known here.
"""

import math
import re
from dataclasses import dataclass

from anaphora.bench.measurement import CounterDelta
from anaphora.cost.server_metrics import SAMPLE

_BLOCK_SIZE = re.compile(r'block_size="(\d+)"')

CACHED = (
    "vllm:prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits_total",
    "sglang:cached_tokens_total",
    "llamacpp:prompt_tokens_cached_total",
)
PROMPT = (
    "vllm:prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_queries_total",
    "sglang:prompt_tokens_total",
)
COMPUTED = ("llamacpp:prompt_tokens_total",)
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one moment; None is what the server does not count."""

    prompt: float | None
    cached: float | None
    computed: float | None
    running: float | None
    block_size: int | None


def read_counters(text: str) -> Reading:
    """Return what a text of metrics says, summed over labels."""
    sums: dict[str, float] = {}
    block_size = None
    for line in text.splitlines():
        sample = SAMPLE.fullmatch(line.strip())
        if sample is None:
            continue
        name, labels, value = sample.groups(default="")
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            sums[name] = sums.get(name, 0.0) + number
        if name == "vllm:cache_config_info" and (found := _BLOCK_SIZE.search(labels)):
            block_size = int(found[1])
    return Reading(
        prompt=_first(sums, PROMPT),
        cached=_first(sums, CACHED),
        computed=_first(sums, COMPUTED),
        running=_first(sums, RUNNING),
        block_size=block_size,
    )


def _first(sums: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((sums[name] for name in names if name in sums), None)


def delta(before: Reading | None, after: Reading | None, sent_tokens: int | None) -> CounterDelta | None:
    """Return how far the counters went between two readings.

    A server that counts only computed tokens found the rest of the `sent_tokens` cached; one that counts computed and
    cached tokens had prompts of both.
    """
    if before is None or after is None:
        return None
    prompt, cached = _minus(after.prompt, before.prompt), _minus(after.cached, before.cached)
    computed = _minus(after.computed, before.computed)
    if cached is None and computed is not None and sent_tokens is not None:
        prompt, cached = float(sent_tokens), sent_tokens - computed
    if prompt is None and cached is not None and computed is not None:
        prompt = cached + computed
    return None if prompt is None and cached is None else CounterDelta(prompt, cached)


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
