"""Two snapshots ten seconds apart."""

from dataclasses import replace

import pytest

from anaphora.cache.pool import PageUsage
from anaphora.metrics.counters import MetricsSnapshot, RequestCounts
from anaphora.metrics.stats_line import stats_line
from tests.metrics.test_counters import make_metrics

IDLE = replace(
    make_metrics().snapshot(),
    requests=RequestCounts(0, 0),
    pages=PageUsage(0, 3, 5),
    prompt_tokens_computed=100,
    prompt_tokens_cached=7,
    generation_tokens=50,
    prefix_cache_hit_rate=0.4567,
)


def test_throughput_is_that_of_the_seconds_between_and_cached_tokens_are_not_in_it() -> None:
    after = replace(
        IDLE,
        requests=RequestCounts(2, 3, 1),
        pages=PageUsage(2, 1, 5),
        prompt_tokens_computed=1_345,
        prompt_tokens_cached=900,
        generation_tokens=53,
    )
    assert stats_line(IDLE, after, 10.0) == (
        "Avg prompt throughput: 124.5 tokens/s, Avg generation throughput: 0.3 tokens/s, Running: 2 reqs, "
        "Waiting: 4 reqs, KV cache usage: 25.0%, Prefix cache hit rate: 45.7%"
    )


@pytest.mark.parametrize(
    ("change", "is_said"),
    [
        ({}, False),
        ({"prompt_tokens_cached": 900}, False),
        ({"prompt_tokens_computed": 101}, True),
        ({"generation_tokens": 51}, True),
        ({"requests": RequestCounts(1, 0)}, True),
        ({"requests": RequestCounts(0, 1)}, True),
        ({"requests": RequestCounts(0, 0, 1)}, True),
    ],
)
def test_nothing_is_said_when_nothing_was_computed_and_nobody_waits(
    change: dict[str, object], *, is_said: bool
) -> None:
    after: MetricsSnapshot = replace(IDLE, **change)  # type: ignore[arg-type]
    assert (stats_line(IDLE, after, 10.0) is not None) is is_said
