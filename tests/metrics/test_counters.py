"""What the metrics count, event by event."""

import pytest

from anaphora.cache.events import CacheListener
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Page
from anaphora.cache.pool import PageUsage
from anaphora.config import CacheConfig, KVLayout
from anaphora.ids import PageId, RequestId
from anaphora.metrics.counters import (
    FIRST_TOKEN_SECONDS,
    MAX_UNKNOWN_FIELDS,
    STEP_TOKENS,
    Histogram,
    HistogramSnapshot,
    HitRate,
    Metrics,
    MetricsSnapshot,
    RequestCounts,
    token_bounds,
)
from anaphora.request import FinishReason, Request, SamplingParams
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.plan import ScheduledChunk, StepPlan

DIGEST = BlockDigest(bytes(32))
LAYOUT = KVLayout(block_size=16, page_size=32, num_pages=11)
SOME_PAGES = PageUsage(used=4, cached=0, empty=6)


def make_metrics(
    *,
    caching: bool = True,
    pages: PageUsage = SOME_PAGES,
) -> Metrics:
    return Metrics(
        model_name="m",
        max_model_len=100,
        cache=CacheConfig(enable_prefix_caching=caching),
        layout=LAYOUT,
        read_pages=lambda: pages,
        read_pinned_pages=lambda: 2,
        read_requests=lambda: RequestCounts(0, 0),
    )


def make_request(
    name: str = "r", num_tokens: int = 48, *, arrival_time: float = 0.0, skips: bool = False
) -> Request:
    return Request(
        request_id=RequestId(name),
        token_ids=list(range(num_tokens)),
        params=SamplingParams(),
        seed=0,
        arrival_time=arrival_time,
        skip_reading_cache=skips,
    )


class Story:
    """Tells a Metrics the life of requests, in the scheduler's order of events."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def admit(self, request: Request, num_cached: int, now: float = 0.0) -> None:
        self.metrics.request_arrived(request)
        request.num_cached_tokens = num_cached
        self.metrics.request_admitted(request, now)

    def append(self, request: Request, *times: float) -> None:
        for now in times:
            request.token_ids.append(7)
            self.metrics.token_appended(request, now)

    def finish(self, request: Request, now: float = 1.0, reason: FinishReason = FinishReason.STOP) -> None:
        request.finish_reason = reason
        self.metrics.request_finished(request, now)

    @property
    def seen(self) -> MetricsSnapshot:
        return self.metrics.snapshot()


@pytest.fixture
def story() -> Story:
    return Story(make_metrics())


def filled(histogram: HistogramSnapshot) -> dict[float, int]:
    """The buckets that are not empty, by upper bound."""
    bounds = [*histogram.bounds, float("inf")]
    return {bound: count for bound, count in zip(bounds, histogram.counts, strict=True) if count}


def test_it_listens_to_both_the_cache_and_the_scheduler() -> None:
    assert isinstance(make_metrics(), CacheListener)
    assert isinstance(make_metrics(), SchedulerListener)


# Queries and hits.


def test_an_admission_counts_its_prompt_as_queried_and_its_cached_part_as_hit(story: Story) -> None:
    """Case 44 of the conformance table: 48 tokens, 32 of them cached."""
    story.admit(make_request(num_tokens=48), num_cached=32)
    assert (story.seen.prefix_cache_queries, story.seen.prefix_cache_hits) == (48, 32)


def test_an_arrival_that_is_not_admitted_counts_nothing(story: Story) -> None:
    story.metrics.request_arrived(make_request())
    assert (story.seen.prefix_cache_queries, story.seen.prefix_cache_hits) == (0, 0)


def test_a_request_that_skips_reading_is_in_neither_counter(story: Story) -> None:
    story.admit(make_request(skips=True), num_cached=0)
    assert (story.seen.prefix_cache_queries, story.seen.prefix_cache_hits) == (0, 0)
    assert story.seen.missed_tokens["bypassed", ""] == 48


def test_a_prompt_that_is_looked_up_is_not_bypassed_whatever_it_hits(story: Story) -> None:
    story.admit(make_request(), num_cached=0)
    story.admit(make_request("s"), num_cached=32)
    assert story.seen.missed_tokens["bypassed", ""] == 0


def test_with_caching_off_queries_and_hits_stay_zero() -> None:
    """Case 46 of the conformance table."""
    story = Story(make_metrics(caching=False))
    story.admit(request := make_request(), num_cached=0)
    story.append(request, 0.5)
    assert (story.seen.prefix_cache_queries, story.seen.prefix_cache_hits) == (0, 0)
    assert story.seen.missed_tokens["bypassed", ""] == 48
    assert story.seen.prompt_tokens_computed == 48


def test_a_resumed_request_is_not_counted_again(story: Story) -> None:
    """Case 45 of the conformance table; what was computed twice has a counter of its own."""
    story.admit(request := make_request(num_tokens=40), num_cached=16)
    story.append(request, *[1.0] * 9)
    story.metrics.request_preempted(request)
    story.metrics.request_resumed(request, num_reused_tokens=32)
    story.metrics.tokens_recomputed(request, 16)
    story.append(request, 2.0)
    seen = story.seen
    assert (seen.prefix_cache_queries, seen.prefix_cache_hits) == (40, 16)
    assert (seen.prompt_tokens_computed, seen.prompt_tokens_cached, seen.prompt_tokens) == (24, 16, 40)
    assert (seen.num_preemptions, seen.preemption_recomputed_tokens) == (1, 16)
    assert seen.generation_tokens == 10
    assert seen.first_token_seconds.count == 1


# Tokens.


def test_a_prompt_counts_at_its_first_output_token(story: Story) -> None:
    story.admit(request := make_request(num_tokens=48), num_cached=32)
    assert story.seen.prompt_tokens == 0
    story.append(request, 0.5)
    story.append(request, 0.6)
    assert (story.seen.prompt_tokens_computed, story.seen.prompt_tokens_cached) == (16, 32)
    assert story.seen.prompt_tokens == 48
    assert story.seen.generation_tokens == 2


def test_a_step_counts_the_tokens_it_computed(story: Story) -> None:
    chunks = [
        ScheduledChunk(
            RequestId("a"), token_ids=[1], start=40, page_table=[PageId(1), PageId(2)], is_decode=True
        ),
        ScheduledChunk(RequestId("b"), token_ids=[1] * 30, start=0, page_table=[PageId(3)], is_decode=False),
    ]
    story.metrics.step_committed(StepPlan(1, tuple(chunks)), 0.1)
    assert filled(story.seen.step_tokens) == {32: 1}
    assert story.seen.step_tokens.total == 31


# Times.


def test_times_are_measured_from_the_arrival_and_from_token_to_token(story: Story) -> None:
    story.admit(request := make_request(arrival_time=10.0), num_cached=0, now=12.0)
    story.append(request, 12.5, 12.53125, 12.5625)
    story.finish(request, now=13.0)
    assert (filled(story.seen.first_token_seconds), story.seen.first_token_seconds.total) == ({2.5: 1}, 2.5)
    assert (filled(story.seen.inter_token_seconds), story.seen.inter_token_seconds.total) == (
        {0.05: 2},
        0.0625,
    )
    assert (filled(story.seen.request_seconds), story.seen.request_seconds.total) == ({5.0: 1}, 3.0)


def test_two_requests_do_not_mix_their_token_times(story: Story) -> None:
    one, two = make_request("one"), make_request("two", arrival_time=1.0)
    story.admit(one, 0)
    story.admit(two, 0)
    story.append(one, 2.0)
    story.append(two, 4.0)
    story.append(one, 5.0)
    assert story.seen.first_token_seconds.total == 5.0
    assert story.seen.inter_token_seconds.total == 3.0


# Ends.


def test_an_end_counts_by_reason(story: Story) -> None:
    for reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.STOP):
        story.admit(request := make_request(), 0)
        story.append(request, 0.1)
        story.finish(request, reason=reason)
    assert story.seen.num_finished == {
        FinishReason.STOP: 2,
        FinishReason.LENGTH: 1,
        FinishReason.ABORT: 0,
        FinishReason.ERROR: 0,
    }


def test_an_end_puts_the_request_into_the_histograms(story: Story) -> None:
    story.admit(request := make_request(num_tokens=48), num_cached=32)
    story.append(request, 0.1, 0.2, 0.3)
    story.finish(request)
    assert (filled(story.seen.request_prompt), story.seen.request_prompt.total) == ({50: 1}, 48)
    assert (filled(story.seen.request_generation), story.seen.request_generation.total) == ({5: 1}, 3)
    assert (filled(story.seen.request_prefill_computed), story.seen.request_prefill_computed.total) == (
        {20: 1},
        16,
    )


def test_a_prefill_lasts_from_the_admission_to_the_first_token_and_counts_at_the_end(story: Story) -> None:
    """Of the same requests as the computed tokens, so that one over the other is a rate."""
    story.admit(request := make_request(arrival_time=1.0), num_cached=32, now=3.0)
    story.append(request, 3.5, 9.0)
    assert story.seen.request_prefill_seconds.count == 0
    story.finish(request, now=10.0)
    assert (story.seen.request_prefill_seconds.count, story.seen.request_prefill_seconds.total) == (1, 0.5)
    assert story.seen.request_prefill_computed.total == 16


def test_a_prefill_that_reused_nothing_is_counted_apart(story: Story) -> None:
    """Only there the tokens and the time make a rate: one that reused much takes a step for a few tokens."""
    for name, num_cached, seconds in (("cold", 0, 2.0), ("warm", 32, 0.5)):
        story.admit(request := make_request(name), num_cached, now=1.0)
        story.append(request, 1.0 + seconds)
        story.finish(request, now=9.0)
    assert story.seen.request_prefill_seconds.total == 2.5
    assert story.seen.uncached_prefill_seconds.total == 2.0
    assert story.seen.uncached_prefill_tokens == 48


def test_a_prompt_computed_for_the_cache_has_a_prefill_that_ends_with_it(story: Story) -> None:
    warm_up = Request(
        request_id=RequestId("w"),
        token_ids=[1] * 48,
        params=SamplingParams(max_tokens=0),
        seed=0,
        arrival_time=0.0,
    )
    story.admit(warm_up, num_cached=0, now=1.0)
    story.finish(warm_up, now=3.0, reason=FinishReason.LENGTH)
    assert story.seen.request_prefill_seconds.total == 2.0


def test_a_fork_has_no_prefill(story: Story) -> None:
    """Its prompt is in another's books; it is never admitted."""
    story.admit(parent := make_request("p"), num_cached=0, now=1.0)
    fork = make_request("f")
    fork.num_cached_tokens = 0
    for request in (parent, fork):
        story.append(request, 2.0)
        story.finish(request, now=3.0)
    assert story.seen.request_prefill_seconds.count == 1


def test_a_request_that_ends_without_a_token_counts_by_reason_and_nowhere_else(story: Story) -> None:
    story.metrics.request_arrived(never_admitted := make_request("a"))
    story.admit(in_prefill := make_request("b"), num_cached=16)
    for request in (never_admitted, in_prefill):
        story.finish(request, reason=FinishReason.ABORT)
    assert story.seen.num_finished[FinishReason.ABORT] == 2
    assert story.seen.request_seconds.count == 0
    assert story.seen.request_prefill_computed.count == 0
    assert story.seen.prompt_tokens == 0


def test_computed_prompt_tokens_equal_the_sum_of_their_histogram_once_all_have_ended(story: Story) -> None:
    for number, reason in enumerate([FinishReason.STOP, FinishReason.ABORT, FinishReason.ERROR] * 3):
        story.admit(request := make_request(str(number), 20 + number), num_cached=16)
        if number % 2:
            story.append(request, 1.0)
        story.finish(request, reason=reason)
    assert story.seen.request_prefill_computed.total == story.seen.prompt_tokens_computed > 0


def test_nothing_is_kept_about_requests_that_ended(story: Story) -> None:
    for number in range(50):
        story.admit(request := make_request(str(number)), num_cached=0)
        story.append(request, *[0.1] * (number % 3))
        story.finish(request)
    for number in range(50, 60):
        story.admit(request := make_request(str(number)), num_cached=0)
        story.finish(request, reason=FinishReason.ABORT)
    assert not story.metrics._last_token_times
    assert not story.metrics._admission_times
    assert not story.metrics._prefill_seconds


def test_a_name_used_again_is_a_new_request(story: Story) -> None:
    for arrival_time in (0.0, 100.0):
        story.admit(request := make_request("same", arrival_time=arrival_time), num_cached=0)
        story.append(request, arrival_time + 1.0)
        story.finish(request, now=arrival_time + 1.0)
    assert story.seen.first_token_seconds.total == 2.0
    assert story.seen.inter_token_seconds.count == 0


# The cache.


def test_an_eviction_counts_pages_not_digests(story: Story) -> None:
    story.metrics.page_evicted(Page(PageId(1)), [DIGEST, DIGEST])
    story.metrics.page_evicted(Page(PageId(2)), [DIGEST])
    assert story.seen.num_page_evictions == 2


def test_a_page_without_digests_is_not_evicted_but_only_used(story: Story) -> None:
    story.metrics.page_evicted(Page(PageId(1)), [])
    assert story.seen.num_page_evictions == 0


def test_a_collision_is_counted(story: Story) -> None:
    story.metrics.token_mismatch(DIGEST)
    assert story.seen.num_token_mismatches == 1


def test_a_pin_that_was_not_granted_is_counted_once_however_many_pages_it_asked_for(story: Story) -> None:
    story.metrics.pin_refused(7)
    assert story.seen.num_pin_refusals == 1


@pytest.mark.parametrize("pages, share", [(PageUsage(4, 0, 6), 0.4), (PageUsage(0, 4, 6), 0.0)])
def test_cached_but_idle_pages_count_as_free(pages: PageUsage, share: float) -> None:
    """Case 64 of the conformance table."""
    assert make_metrics(pages=pages).snapshot().page_usage == share


def test_gauges_are_read_when_asked_for() -> None:
    numbers = [RequestCounts(1, 2, 3), RequestCounts(4, 5)]
    metrics = Metrics(
        model_name="m",
        max_model_len=100,
        cache=CacheConfig(),
        layout=LAYOUT,
        read_pages=lambda: PageUsage(1, 2, 7),
        read_pinned_pages=lambda: 2,
        read_requests=lambda: numbers.pop(0),
    )
    first, second = metrics.snapshot(), metrics.snapshot()
    assert (first.requests.running, first.requests.waiting, first.requests.deferred) == (1, 5, 3)
    assert (second.requests.running, second.requests.waiting, second.requests.deferred) == (4, 5, 0)
    assert first.pages == PageUsage(1, 2, 7)
    assert first.num_pinned_pages == 2


def test_the_cache_settings_are_text_and_give_the_capacity_in_blocks() -> None:
    settings = make_metrics().snapshot().cache_settings
    assert settings["block_size"] == "16"
    assert settings["num_gpu_blocks"] == "22"  # 11 pages of two blocks
    assert settings["num_pages"] == "11"
    assert settings["enable_prefix_caching"] == "True"
    assert settings["kv_cache_memory_bytes"] == "None"


def test_a_snapshot_does_not_change_afterwards(story: Story) -> None:
    before = story.seen
    story.admit(request := make_request(), num_cached=0)
    story.append(request, 0.1)
    story.finish(request)
    story.metrics.count_unknown_field("x")
    assert before == make_metrics().snapshot()


# Unknown fields.


def test_unknown_fields_are_counted_by_name(story: Story) -> None:
    for name in ("top_a", "mirostat", "top_a"):
        story.metrics.count_unknown_field(name)
    assert story.seen.num_unknown_fields == {"top_a": 2, "mirostat": 1}


def test_after_a_hundred_names_the_rest_is_other(story: Story) -> None:
    for number in range(MAX_UNKNOWN_FIELDS + 50):
        story.metrics.count_unknown_field(f"field{number}")
    story.metrics.count_unknown_field("field3")
    fields = story.seen.num_unknown_fields
    assert len(fields) == MAX_UNKNOWN_FIELDS + 1
    assert (fields["other"], fields["field3"]) == (50, 2)


@pytest.mark.parametrize("name", ["x" * 65, "two\nlines", "\ud800", "\0"])
def test_a_name_that_would_spoil_the_page_is_other(story: Story, name: str) -> None:
    """A JSON key may be half a surrogate pair, which no UTF-8 page can hold."""
    story.metrics.count_unknown_field(name)
    assert story.seen.num_unknown_fields == {"other": 1}


# The hit rate of the log line.


def test_the_hit_rate_is_that_of_the_last_requests() -> None:
    """Case 42 of the conformance table."""
    rate, values = HitRate(max_requests=5), []
    for update in [(1, 20, 9), (4, 80, 16), (1, 10, 2)]:
        rate.observe(*update)
        values.append(rate.value)
    assert values == [0.45, 0.25, 0.2]


def test_an_empty_update_is_ignored() -> None:
    rate = HitRate(max_requests=5)
    rate.observe(1, 20, 10)
    rate.observe(0, 0, 0)
    rate.observe(0, 100, 0)
    assert rate.value == 0.5
    assert len(rate._updates) == 1


def test_a_single_update_larger_than_the_window_is_kept_alone() -> None:
    rate = HitRate(max_requests=5)
    rate.observe(2, 20, 20)
    rate.observe(10, 40, 10)
    assert rate.value == 0.25
    rate.observe(1, 10, 10)
    assert rate.value == 1.0


def test_without_queries_the_rate_is_zero() -> None:
    assert HitRate().value == 0.0


def test_the_hit_rate_is_in_tokens(story: Story) -> None:
    story.admit(make_request("a", 100), num_cached=96)
    story.admit(make_request("b", 20), num_cached=0)
    assert story.seen.prefix_cache_hit_rate == 0.8


def test_a_cleared_cache_begins_a_new_window_but_no_new_counters(story: Story) -> None:
    story.admit(make_request("a", 100), num_cached=96)
    story.metrics.cleared()
    assert (story.seen.prefix_cache_hit_rate, story.seen.prefix_cache_hits) == (0.0, 96)
    story.admit(make_request("b", 64), num_cached=16)
    assert story.seen.prefix_cache_hit_rate == 0.25


def test_the_window_holds_a_thousand_requests(story: Story) -> None:
    story.admit(make_request(num_tokens=17), num_cached=16)
    for _ in range(1_000):
        story.admit(make_request(num_tokens=17), num_cached=0)
    assert story.seen.prefix_cache_hit_rate == 0.0
    assert story.seen.prefix_cache_hits == 16
    assert len(story.metrics._hit_rate._updates) == 1_000


# Histograms.


def test_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 2.5, 1e9):
        histogram.observe(value)
    assert histogram.snapshot() == HistogramSnapshot((1.0, 2.0), (2, 2, 2), 7.5 + 1e9)
    assert histogram.snapshot().count == 6


@pytest.mark.parametrize(
    "max_model_len, bounds",
    [
        (100, (1, 2, 5, 10, 20, 50, 100)),
        (99, (1, 2, 5, 10, 20, 50)),
        (8192, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)),
        (2, (1, 2)),
    ],
)
def test_token_bounds_go_1_2_5_up_to_the_longest_sequence(
    max_model_len: int, bounds: tuple[int, ...]
) -> None:
    assert token_bounds(max_model_len) == bounds


def test_all_bounds_ascend() -> None:
    for bounds in (FIRST_TOKEN_SECONDS, STEP_TOKENS, token_bounds(1_000_000)):
        assert list(bounds) == sorted(set(bounds))
