"""The metrics beside the real scheduler and cache: what they say is what the runner did."""

from collections.abc import Sequence

from anaphora.cache.manager import KVManager
from anaphora.cache.pool import PageUsage
from anaphora.config import CacheConfig, KVLayout, SchedulerConfig
from anaphora.ids import RequestId
from anaphora.metrics.counters import Metrics, MetricsSnapshot, RequestCounts
from anaphora.request import FinishReason, Request, SamplingParams
from anaphora.scheduler.scheduler import Scheduler
from tests.fake_runner import FakeRunner

BLOCK = 4


class Engine:
    """A scheduler, a cache and a FakeRunner, watched by a Metrics."""

    def __init__(self, num_pages: int, *, caching: bool = True) -> None:
        layout = KVLayout(block_size=BLOCK, page_size=BLOCK, num_pages=num_pages)
        cache = CacheConfig(block_size=BLOCK, enable_prefix_caching=caching)
        self.metrics = Metrics(
            model_name="m",
            max_model_len=40,
            cache=cache,
            layout=layout,
            read_pages=self.read_pages,
            read_pinned_pages=lambda: self.manager.pool.num_pinned_pages,
            read_requests=self.read_requests,
        )
        self.manager = KVManager(layout, self.metrics, enable_prefix_caching=caching)
        self.scheduler = Scheduler(
            SchedulerConfig(),
            self.manager,
            model_fingerprint=bytes(32),
            max_model_len=40,
            listener=self.metrics,
        )
        self.runner = FakeRunner(layout)
        self.now = 0.0

    def read_pages(self) -> PageUsage:
        return self.manager.pool.usage()

    def read_requests(self) -> RequestCounts:
        return RequestCounts(self.scheduler.num_running, self.scheduler.num_waiting)

    def run(self, *prompts: Sequence[int], max_tokens: int = 4, skips: bool = False) -> MetricsSnapshot:
        for number, prompt in enumerate(prompts):
            request_id = RequestId(f"{self.now}/{number}")
            params = SamplingParams(max_tokens=max_tokens, temperature=0.0)
            self.scheduler.add(
                Request(
                    request_id=request_id,
                    token_ids=list(prompt),
                    params=params,
                    seed=0,
                    arrival_time=self.now,
                    skip_reading_cache=skips,
                )
            )
        while self.scheduler.has_work:
            self.step()
        return self.metrics.snapshot()

    def step(self) -> None:
        self.now += 1.0
        plan = self.scheduler.plan(self.now)
        for update in self.scheduler.commit(plan, self.runner.run(plan), self.now):
            if not update.request.is_finished and update.request.num_output_tokens >= (
                update.request.params.max_tokens or 0
            ):
                self.scheduler.finish(update.request.request_id, FinishReason.LENGTH, None, self.now)

    def check_books(self, *, num_requests: int, num_warm_ups: int = 0) -> None:
        """Every token the runner computed is a prompt token, the input of a decode step, or work done twice."""
        seen = self.metrics.snapshot()
        num_decoded = seen.generation_tokens - (num_requests - num_warm_ups)
        expected = seen.prompt_tokens_computed + num_decoded + seen.preemption_recomputed_tokens
        assert self.runner.num_computed_tokens == expected == seen.step_tokens.total
        assert seen.pages.used == 0 and sum(seen.pages) == self.manager.layout.num_usable_pages
        assert seen.request_prefill_computed.total == seen.prompt_tokens_computed
        assert seen.request_generation.total == seen.generation_tokens
        assert sum(seen.num_finished.values()) == num_requests


def test_the_second_of_two_equal_prompts_is_a_hit_but_for_its_last_block() -> None:
    engine = Engine(num_pages=20)
    engine.run(range(16))
    seen = engine.run(range(16))
    assert (seen.prefix_cache_queries, seen.prefix_cache_hits) == (32, 12)
    assert (seen.prompt_tokens_computed, seen.prompt_tokens_cached) == (20, 12)
    assert (seen.requests, seen.num_preemptions) == (RequestCounts(0, 0), 0)
    engine.check_books(num_requests=2)


def test_a_prompt_that_is_computed_for_the_cache_only_is_in_the_books() -> None:
    """It counts as a prompt and as a request of no output, and has no time to its first token."""
    engine = Engine(num_pages=20)
    engine.run(range(16), max_tokens=0)
    seen = engine.run(range(17), max_tokens=2)
    assert (seen.prompt_tokens_computed, seen.prompt_tokens_cached) == (17, 16)
    assert (seen.request_generation.count, seen.first_token_seconds.count) == (2, 1)
    assert seen.num_finished[FinishReason.LENGTH] == 2
    engine.check_books(num_requests=2, num_warm_ups=1)


def test_with_caching_off_everything_is_computed_and_nothing_is_queried() -> None:
    engine = Engine(num_pages=20, caching=False)
    engine.run(range(16))
    seen = engine.run(range(16))
    assert (seen.prefix_cache_queries, seen.prefix_cache_hits) == (0, 0)
    assert (seen.prompt_tokens_computed, seen.prompt_tokens_cached, seen.missed_tokens["bypassed", ""]) == (
        32,
        0,
        32,
    )
    engine.check_books(num_requests=2)


def test_a_prompt_that_is_not_looked_up_is_bypassed_and_published_all_the_same() -> None:
    engine = Engine(num_pages=20)
    engine.run(range(16), skips=True)
    seen = engine.run(range(16))
    assert (seen.prefix_cache_queries, seen.prefix_cache_hits, seen.missed_tokens["bypassed", ""]) == (
        16,
        12,
        16,
    )
    assert engine.run(range(16), skips=True).prompt_tokens_cached == 12
    engine.check_books(num_requests=3)


def test_preempted_work_is_counted_as_recomputed_and_nowhere_else() -> None:
    engine = Engine(num_pages=11)
    seen = engine.run(range(16), range(100, 116), range(200, 216), max_tokens=20)
    assert seen.num_preemptions > 0 and seen.preemption_recomputed_tokens > 0
    assert seen.prefix_cache_queries == seen.prompt_tokens == 48
    engine.check_books(num_requests=3)


def test_pages_taken_from_the_cache_are_evictions() -> None:
    engine = Engine(num_pages=11)
    engine.run(range(16), max_tokens=1)
    assert engine.metrics.snapshot().num_page_evictions == 0
    seen = engine.run(range(100, 139), max_tokens=1)
    assert seen.num_page_evictions == 4
    engine.check_books(num_requests=2)
