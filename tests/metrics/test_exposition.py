"""The page a Prometheus server scrapes, letter by letter."""

import re
from dataclasses import replace

import pytest

from anaphora.cache.pool import PageUsage
from anaphora.config import CacheConfig, KVLayout
from anaphora.ids import RequestId
from anaphora.metrics.counters import (
    ExplainMemory,
    HistogramSnapshot,
    Metrics,
    MetricsSnapshot,
    RequestCounts,
)
from anaphora.metrics.exposition import CONTENT_TYPE, FAMILIES, exposition
from anaphora.request import FinishReason, Request, SamplingParams

COUNTERS_AND_GAUGES = """\
# HELP vllm:num_requests_running Requests that hold K/V pages.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3
# HELP vllm:num_requests_waiting Requests waiting to be admitted.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 5
# HELP vllm:num_requests_waiting_by_reason Waiting requests by reason: capacity = for pages or a place in the batch, \
deferred = for blocks that another request is computing. The sum is vllm:num_requests_waiting.
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 4
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 1
# HELP vllm:kv_cache_usage_perc Share of K/V pages that requests hold, 1 = all. Cached but idle pages count as free.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
# HELP anaphora:pages K/V pages by state: used = held by requests, cached = idle with content, empty = idle without.
# TYPE anaphora:pages gauge
anaphora:pages{engine="0",model_name="m",state="used"} 4
anaphora:pages{engine="0",model_name="m",state="cached"} 1
anaphora:pages{engine="0",model_name="m",state="empty"} 5
# HELP anaphora:pinned_pages K/V pages that are pinned, held by requests or not; a pin lapses when the next step is \
planned.
# TYPE anaphora:pinned_pages gauge
anaphora:pinned_pages{engine="0",model_name="m"} 2
# HELP vllm:cache_config_info Settings of the K/V cache, as labels; always 1.
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",model_name="m",num_gpu_blocks="22"} 1
# HELP vllm:prefix_cache_queries_total Prompt tokens looked up in the prefix cache, once per request, at its first \
admission.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 48
# HELP vllm:prefix_cache_hits_total Prompt tokens found in the prefix cache, once per request, at its first admission.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 32
# HELP anaphora:prefix_cache_miss_tokens_total Prompt tokens that were not cached, by cause, once per request. Their sum \
without bypassed (not looked up, because caching is off or every token had to be computed) is the queries less the hits.
# TYPE anaphora:prefix_cache_miss_tokens_total counter
anaphora:prefix_cache_miss_tokens_total{cause="bypassed",engine="0",model_name="m",sub=""} 9
anaphora:prefix_cache_miss_tokens_total{cause="law",engine="0",model_name="m",sub="last_token"} 2
anaphora:prefix_cache_miss_tokens_total{cause="new",engine="0",model_name="m",sub=""} 14
# HELP anaphora:explain_failures_total Verdicts that could not be made: a bug of ours.
# TYPE anaphora:explain_failures_total counter
anaphora:explain_failures_total{engine="0",model_name="m"} 0
# HELP anaphora:explain_remembered What explanations rest on: requests, their bytes, evicted blocks.
# TYPE anaphora:explain_remembered gauge
anaphora:explain_remembered{engine="0",model_name="m",what="requests"} 3
# HELP anaphora:explain_forgotten_total Requests and evicted blocks that are no longer remembered.
# TYPE anaphora:explain_forgotten_total counter
anaphora:explain_forgotten_total{engine="0",model_name="m",what="ghosts"} 5
# HELP vllm:prompt_tokens_total Prompt tokens of requests that got a first token or asked for none.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 48
# HELP vllm:prompt_tokens_by_source_total Prompt tokens by where their K/V came from. The sum is \
vllm:prompt_tokens_total.
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 16
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_cache_hit"} 32
# HELP vllm:prompt_tokens_cached_total Prompt tokens that were not computed because they were cached.
# TYPE vllm:prompt_tokens_cached_total counter
vllm:prompt_tokens_cached_total{engine="0",model_name="m"} 32
# HELP vllm:generation_tokens_total Generated tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 2
# HELP anaphora:uncached_prefill_tokens_total Prompt tokens of the ended requests that reused nothing.
# TYPE anaphora:uncached_prefill_tokens_total counter
anaphora:uncached_prefill_tokens_total{engine="0",model_name="m"} 0
# HELP vllm:request_success_total Requests that ended, by reason.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 1
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 0
vllm:request_success_total{engine="0",finished_reason="error",model_name="m"} 0
# HELP vllm:num_preemptions_total How often a request lost its pages to another.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 1
# HELP anaphora:preemption_recomputed_tokens_total Tokens computed before a preemption and again after it.
# TYPE anaphora:preemption_recomputed_tokens_total counter
anaphora:preemption_recomputed_tokens_total{engine="0",model_name="m"} 17
# HELP anaphora:block_rounding_tokens_total Prompt tokens that were cached, but inside a block of which the rest differed.
# TYPE anaphora:block_rounding_tokens_total counter
anaphora:block_rounding_tokens_total{engine="0",model_name="m"} 5
# HELP anaphora:coalesced_tokens_total Reused tokens that a request had waited for while another one computed them.
# TYPE anaphora:coalesced_tokens_total counter
anaphora:coalesced_tokens_total{engine="0",model_name="m"} 48
# HELP anaphora:coalesce_timeouts_total Waits for another request's blocks that ran out.
# TYPE anaphora:coalesce_timeouts_total counter
anaphora:coalesce_timeouts_total{engine="0",model_name="m"} 1
# HELP anaphora:page_evictions_total Cached pages taken for new content.
# TYPE anaphora:page_evictions_total counter
anaphora:page_evictions_total{engine="0",model_name="m"} 0
# HELP anaphora:token_mismatch_total Digests found whose tokens differ: collisions, treated as misses.
# TYPE anaphora:token_mismatch_total counter
anaphora:token_mismatch_total{engine="0",model_name="m"} 0
# HELP anaphora:pin_refusals_total Pins not granted, because the pinned share of the pages would have grown too large.
# TYPE anaphora:pin_refusals_total counter
anaphora:pin_refusals_total{engine="0",model_name="m"} 0
# HELP anaphora:unplaced_cache_marks_total cache_control of requests that had no effect, because its place among the \
prompt's tokens is not known.
# TYPE anaphora:unplaced_cache_marks_total counter
anaphora:unplaced_cache_marks_total{engine="0",model_name="m"} 1
# HELP anaphora:unknown_request_fields_total Request fields that nobody defines, accepted and ignored, by name.
# TYPE anaphora:unknown_request_fields_total counter
anaphora:unknown_request_fields_total{engine="0",field="top_a",model_name="m"} 2
"""

PROMPT_HISTOGRAM = """\
# HELP vllm:request_prompt_tokens Prompt tokens of a request.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="1.0",model_name="m"} 0
vllm:request_prompt_tokens_bucket{engine="0",le="2.0",model_name="m"} 0
vllm:request_prompt_tokens_bucket{engine="0",le="5.0",model_name="m"} 0
vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="m"} 0
vllm:request_prompt_tokens_bucket{engine="0",le="20.0",model_name="m"} 0
vllm:request_prompt_tokens_bucket{engine="0",le="50.0",model_name="m"} 1
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="m"} 1
vllm:request_prompt_tokens_sum{engine="0",model_name="m"} 48
vllm:request_prompt_tokens_count{engine="0",model_name="m"} 1
"""

NAMES = [
    "anaphora:block_rounding_tokens_total",
    "anaphora:coalesce_timeouts_total",
    "anaphora:coalesced_tokens_total",
    "anaphora:explain_failures_total",
    "anaphora:explain_forgotten_total",
    "anaphora:explain_remembered",
    "anaphora:page_evictions_total",
    "anaphora:pages",
    "anaphora:pin_refusals_total",
    "anaphora:pinned_pages",
    "anaphora:preemption_recomputed_tokens_total",
    "anaphora:prefix_cache_miss_tokens_total",
    "anaphora:token_mismatch_total",
    "anaphora:uncached_prefill_time_seconds",
    "anaphora:uncached_prefill_tokens_total",
    "anaphora:unknown_request_fields_total",
    "anaphora:unplaced_cache_marks_total",
    "vllm:cache_config_info",
    "vllm:e2e_request_latency_seconds",
    "vllm:generation_tokens_total",
    "vllm:inter_token_latency_seconds",
    "vllm:iteration_tokens_total",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions_total",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:prompt_tokens_total",
    "vllm:request_generation_tokens",
    "vllm:request_prefill_kv_computed_tokens",
    "vllm:request_prefill_time_seconds",
    "vllm:request_prompt_tokens",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds",
]

LABEL = r'[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*"'
SAMPLE_LINE = re.compile(rf"([a-z:_0-9]+)\{{({LABEL}(?:,{LABEL})*)\}} (-?[0-9.]+(?:e[+-][0-9]+)?)")


@pytest.fixture
def snapshot() -> MetricsSnapshot:
    """One request of 48 tokens, 32 of them cached, that gave two tokens, and one that is not looked up."""
    metrics = Metrics(
        model_name="m",
        max_model_len=64,
        cache=CacheConfig(),
        layout=KVLayout(block_size=16, page_size=32, num_pages=11),
        read_pages=lambda: PageUsage(4, 1, 5),
        read_pinned_pages=lambda: 2,
        read_requests=lambda: RequestCounts(running=3, waiting_for_capacity=4, deferred=1),
        read_explain_memory=lambda: ExplainMemory({"requests": 3}, {"ghosts": 5}),
    )
    request = Request(
        request_id=RequestId("r"), token_ids=[1] * 48, params=SamplingParams(), seed=0, arrival_time=1.0
    )
    request.num_cached_tokens = 32
    metrics.request_admitted(request, 1.0)
    metrics.count_missed({("new", ""): 14, ("law", "last_token"): 2})
    skipping = Request(
        request_id=RequestId("s"),
        token_ids=[1] * 9,
        params=SamplingParams(),
        seed=0,
        arrival_time=1.0,
        skip_reading_cache=True,
    )
    metrics.request_admitted(skipping, 1.0)
    for now in (1.5, 1.53125):
        request.token_ids.append(2)
        metrics.token_appended(request, now)
        metrics.request_preempted(request) if now == 1.5 else None
    metrics.tokens_recomputed(request, 17)
    metrics.tokens_rounded(request, 5)
    metrics.request_coalesced(request, 48)
    metrics.coalescing_timed_out(request)
    request.finish_reason = FinishReason.STOP
    metrics.request_finished(request, 2.0)
    metrics.count_unknown_field("top_a")
    metrics.count_unknown_field("top_a")
    metrics.count_unplaced_mark()
    settings = {"block_size": "16", "num_gpu_blocks": "22"}
    return replace(metrics.snapshot(), cache_settings=settings)


def test_counters_and_gauges_are_written_exactly_so(snapshot: MetricsSnapshot) -> None:
    text = exposition(snapshot)
    assert text[: text.index("# HELP vllm:time_to_first_token_seconds")] == COUNTERS_AND_GAUGES


def test_a_histogram_is_written_exactly_so(snapshot: MetricsSnapshot) -> None:
    assert PROMPT_HISTOGRAM in exposition(snapshot)


def test_bounds_are_written_as_vllm_writes_them(snapshot: MetricsSnapshot) -> None:
    histogram = HistogramSnapshot((0.001, 0.25, 1, 500_000, 1_000_000, 2_000_000), (1, 1, 1, 1, 1, 1, 1), 0.5)
    text = exposition(replace(snapshot, step_tokens=histogram))
    lines = [line for line in text.splitlines() if line.startswith("vllm:iteration_tokens_total_")]
    assert lines == [
        'vllm:iteration_tokens_total_bucket{engine="0",le="0.001",model_name="m"} 1',
        'vllm:iteration_tokens_total_bucket{engine="0",le="0.25",model_name="m"} 2',
        'vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 3',
        'vllm:iteration_tokens_total_bucket{engine="0",le="500000.0",model_name="m"} 4',
        'vllm:iteration_tokens_total_bucket{engine="0",le="1e+06",model_name="m"} 5',
        'vllm:iteration_tokens_total_bucket{engine="0",le="2e+06",model_name="m"} 6',
        'vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 7',
        'vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 0.5',
        'vllm:iteration_tokens_total_count{engine="0",model_name="m"} 7',
    ]


def test_label_values_are_escaped(snapshot: MetricsSnapshot) -> None:
    text = exposition(replace(snapshot, model_name='C:\\models\\"new"\nline', num_unknown_fields={'a"b': 1}))
    assert r'model_name="C:\\models\\\"new\"\nline"' in text
    assert r'field="a\"b"' in text
    assert all(line.startswith("#") or SAMPLE_LINE.fullmatch(line) for line in text.splitlines())


def test_every_name_is_exported_once_and_gone_names_never(snapshot: MetricsSnapshot) -> None:
    text = exposition(snapshot)
    assert sorted(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)) == NAMES
    assert "gpu_" not in text.replace("num_gpu_blocks", "")


def test_every_line_is_well_formed_and_belongs_to_the_family_above_it(snapshot: MetricsSnapshot) -> None:
    family = kind = ""
    for line in exposition(snapshot).splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family
            kind = line.split()[3]
        else:
            assert (match := SAMPLE_LINE.fullmatch(line)), line
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert match[1] in [family + suffix for suffix in suffixes]
            assert 'model_name="m"' in match[2] and 'engine="0"' in match[2]
            assert len(set(match[2].split(","))) == len(match[2].split(","))


def test_counters_end_in_total_and_gauges_do_not() -> None:
    for family in FAMILIES:
        assert family.kind == "histogram" or (family.kind == "counter") == family.name.endswith("_total")


def test_the_page_can_be_sent_even_before_anything_happened() -> None:
    metrics = Metrics(
        model_name="m",
        max_model_len=64,
        cache=CacheConfig(),
        layout=KVLayout(16, 16, 2),
        read_pages=lambda: PageUsage(0, 0, 1),
        read_pinned_pages=lambda: 2,
        read_requests=lambda: RequestCounts(0, 0),
    )
    text = exposition(metrics.snapshot())
    assert text.endswith("\n") and "\n\n" not in text
    assert 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0\n' in text


def test_the_content_type_names_the_version() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
