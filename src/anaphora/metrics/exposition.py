"""Writes a metrics snapshot as text in the Prometheus format, version 0.0.4.

Names and labels are vLLM's where it has the metric: docs/cache-semantics.md section 4.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from anaphora.metrics.counters import HistogramSnapshot, MetricsSnapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Series = list[tuple[Mapping[str, str], float]]
"""Values and the labels that tell them apart."""


class Family(NamedTuple):
    """One metric as it is scraped: its name, what it means, and how to find it in a snapshot."""

    name: str
    kind: str
    help: str
    read: Callable[[MetricsSnapshot], float | Series | HistogramSnapshot]


# fmt: off
FAMILIES = (
    Family("vllm:num_requests_running", "gauge", "Requests that hold K/V pages.",
           lambda s: s.requests.running),
    Family("vllm:num_requests_waiting", "gauge", "Requests waiting to be admitted.",
           lambda s: s.requests.waiting),
    Family("vllm:num_requests_waiting_by_reason", "gauge",
           "Waiting requests by reason: capacity = for pages or a place in the batch, deferred = for blocks that "
           "another request is computing. The sum is vllm:num_requests_waiting.",
           lambda s: [({"reason": "capacity"}, s.requests.waiting_for_capacity),
                      ({"reason": "deferred"}, s.requests.deferred)]),
    Family("vllm:kv_cache_usage_perc", "gauge",
           "Share of K/V pages that requests hold, 1 = all. Cached but idle pages count as free.",
           lambda s: s.page_usage),
    Family("anaphora:pages", "gauge",
           "K/V pages by state: used = held by requests, cached = idle with content, empty = idle without.",
           lambda s: [({"state": state}, number) for state, number in s.pages._asdict().items()]),
    Family("anaphora:pinned_pages", "gauge",
           "K/V pages that are pinned, held by requests or not; a pin lapses when the next step is planned.",
           lambda s: s.num_pinned_pages),
    Family("vllm:cache_config_info", "gauge", "Settings of the K/V cache, as labels; always 1.",
           lambda s: [(s.cache_settings, 1)]),
    Family("vllm:prefix_cache_queries_total", "counter",
           "Prompt tokens looked up in the prefix cache, once per request, at its first admission.",
           lambda s: s.prefix_cache_queries),
    Family("vllm:prefix_cache_hits_total", "counter",
           "Prompt tokens found in the prefix cache, once per request, at its first admission.",
           lambda s: s.prefix_cache_hits),
    Family("anaphora:prefix_cache_miss_tokens_total", "counter",
           "Prompt tokens that were not cached, by cause, once per request. Their sum without bypassed (not looked up, "
           "because caching is off or every token had to be computed) is the queries less the hits.",
           lambda s: [({"cause": c, "sub": sub}, n) for (c, sub), n in sorted(s.missed_tokens.items())]),
    Family("anaphora:explain_failures_total", "counter", "Verdicts that could not be made: a bug of ours.",
           lambda s: s.num_explain_failures),
    Family("anaphora:explain_remembered", "gauge", "What explanations rest on: requests, their bytes, evicted blocks.",
           lambda s: [({"what": what}, number) for what, number in s.explain_memory.remembered.items()]),
    Family("anaphora:explain_forgotten_total", "counter", "Requests and evicted blocks that are no longer remembered.",
           lambda s: [({"what": what}, number) for what, number in s.explain_memory.forgotten.items()]),
    Family("vllm:prompt_tokens_total", "counter", "Prompt tokens of requests that got a first token or asked for none.",
           lambda s: s.prompt_tokens),
    Family("vllm:prompt_tokens_by_source_total", "counter",
           "Prompt tokens by where their K/V came from. The sum is vllm:prompt_tokens_total.",
           lambda s: [({"source": "local_compute"}, s.prompt_tokens_computed),
                      ({"source": "local_cache_hit"}, s.prompt_tokens_cached)]),
    Family("vllm:prompt_tokens_cached_total", "counter",
           "Prompt tokens that were not computed because they were cached.",
           lambda s: s.prompt_tokens_cached),
    Family("vllm:generation_tokens_total", "counter", "Generated tokens.",
           lambda s: s.generation_tokens),
    Family("anaphora:uncached_prefill_tokens_total", "counter",
           "Prompt tokens of the ended requests that reused nothing.",
           lambda s: s.uncached_prefill_tokens),
    Family("vllm:request_success_total", "counter", "Requests that ended, by reason.",
           lambda s: [({"finished_reason": reason.value}, number) for reason, number in s.num_finished.items()]),
    Family("vllm:num_preemptions_total", "counter", "How often a request lost its pages to another.",
           lambda s: s.num_preemptions),
    Family("anaphora:preemption_recomputed_tokens_total", "counter",
           "Tokens computed before a preemption and again after it.",
           lambda s: s.preemption_recomputed_tokens),
    Family("anaphora:block_rounding_tokens_total", "counter",
           "Prompt tokens that were cached, but inside a block of which the rest differed.",
           lambda s: s.block_rounding_tokens),
    Family("anaphora:coalesced_tokens_total", "counter",
           "Reused tokens that a request had waited for while another one computed them.",
           lambda s: s.coalesced_tokens),
    Family("anaphora:coalesce_timeouts_total", "counter", "Waits for another request's blocks that ran out.",
           lambda s: s.num_coalesce_timeouts),
    Family("anaphora:page_evictions_total", "counter", "Cached pages taken for new content.",
           lambda s: s.num_page_evictions),
    Family("anaphora:token_mismatch_total", "counter",
           "Digests found whose tokens differ: collisions, treated as misses.",
           lambda s: s.num_token_mismatches),
    Family("anaphora:pin_refusals_total", "counter",
           "Pins not granted, because the pinned share of the pages would have grown too large.",
           lambda s: s.num_pin_refusals),
    Family("anaphora:unplaced_cache_marks_total", "counter",
           "cache_control of requests that had no effect, because its place among the prompt's tokens is not known.",
           lambda s: s.num_unplaced_marks),
    Family("anaphora:unknown_request_fields_total", "counter",
           "Request fields that nobody defines, accepted and ignored, by name.",
           lambda s: [({"field": name}, number) for name, number in s.num_unknown_fields.items()]),
    Family("vllm:time_to_first_token_seconds", "histogram", "Time from a request's arrival to its first token.",
           lambda s: s.first_token_seconds),
    Family("vllm:inter_token_latency_seconds", "histogram", "Time between two tokens of a request.",
           lambda s: s.inter_token_seconds),
    Family("vllm:e2e_request_latency_seconds", "histogram", "Time from a request's arrival to its end.",
           lambda s: s.request_seconds),
    Family("vllm:request_prompt_tokens", "histogram", "Prompt tokens of a request.",
           lambda s: s.request_prompt),
    Family("vllm:request_generation_tokens", "histogram", "Generated tokens of a request.",
           lambda s: s.request_generation),
    Family("vllm:request_prefill_kv_computed_tokens", "histogram", "Prompt tokens of a request that were not cached.",
           lambda s: s.request_prefill_computed),
    Family("vllm:request_prefill_time_seconds", "histogram",
           "Time of a request from its admission to the end of its prompt.",
           lambda s: s.request_prefill_seconds),
    Family("anaphora:uncached_prefill_time_seconds", "histogram",
           "The same, of the requests that reused nothing.",
           lambda s: s.uncached_prefill_seconds),
    Family("vllm:iteration_tokens_total", "histogram", "Tokens computed by a step.",
           lambda s: s.step_tokens),
)
# fmt: on


def exposition(snapshot: MetricsSnapshot) -> str:
    """Return the text of all metrics."""
    common = {"model_name": snapshot.model_name, "engine": snapshot.engine}
    return "".join(line + "\n" for family in FAMILIES for line in _lines(family, snapshot, common))


def _lines(family: Family, snapshot: MetricsSnapshot, common: Mapping[str, str]) -> Iterator[str]:
    yield f"# HELP {family.name} {_escape_help(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    value = family.read(snapshot)
    if isinstance(value, HistogramSnapshot):
        yield from _histogram_lines(family.name, value, common)
    elif isinstance(value, int | float):
        yield _sample(family.name, common, value)
    else:
        for labels, number in value:
            yield _sample(family.name, {**common, **labels}, number)


def _histogram_lines(name: str, histogram: HistogramSnapshot, common: Mapping[str, str]) -> Iterator[str]:
    bounds = [*map(_bound, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
        yield _sample(f"{name}_bucket", {**common, "le": bound}, count)
    yield _sample(f"{name}_sum", common, histogram.total)
    yield _sample(f"{name}_count", common, histogram.count)


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    text = ",".join(f'{label}="{_escape_label(labels[label])}"' for label in sorted(labels))
    return f"{name}{{{text}}} {value}"


def _bound(value: float) -> str:
    """Return a bound as vLLM writes it: 0.5, 20.0, 1e+06; a dashboard over both compares these texts."""
    return f"{value:.0e}" if value >= 1e6 else str(float(value))


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _escape_label(text: str) -> str:
    return _escape_help(text).replace('"', r"\"")
