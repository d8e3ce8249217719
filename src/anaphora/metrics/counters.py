"""Counts what happens in the cache and the scheduler, and hands it out as a frozen snapshot.

Knows no clock and no text format: times come with the events, and `exposition.py` writes the text.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from anaphora.cache.events import CacheListener
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Page
from anaphora.cache.pool import PageUsage
from anaphora.config import CacheConfig, KVLayout
from anaphora.ids import RequestId
from anaphora.request import FinishReason, Request
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.plan import StepPlan

HIT_RATE_WINDOW = 1000
MAX_UNKNOWN_FIELDS = 100
MAX_FIELD_NAME_LENGTH = 64
OTHER_FIELD = "other"

# The bounds are vLLM's, so that its dashboards fit.
# fmt: off
FIRST_TOKEN_SECONDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)
INTER_TOKEN_SECONDS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)
REQUEST_SECONDS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
    120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)
# fmt: on
PREFILL_SECONDS = REQUEST_SECONDS
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def token_bounds(max_model_len: int) -> tuple[int, ...]:
    """Return 1, 2, 5, 10, 20, 50, … up to the longest sequence."""
    return tuple(
        digit * 10**power
        for power in range(len(str(max_model_len)))
        for digit in (1, 2, 5)
        if digit * 10**power <= max_model_len
    )


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """How many values fell at or below each bound but above the one before, how many above all, and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)


class Histogram:
    """Sorts values into buckets with inclusive upper bounds, in O(log buckets) each."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total: float = 0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def snapshot(self) -> HistogramSnapshot:
        """Return the state."""
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._total)


class HitRate:
    """The share of looked-up tokens that were hits, over the last so many requests.

    The oldest updates leave first; the newest stays, however many requests it stands for.
    """

    def __init__(self, max_requests: int = HIT_RATE_WINDOW) -> None:
        self._max_requests = max_requests
        self.clear()

    def observe(self, num_requests: int, num_queries: int, num_hits: int) -> None:
        """Take in one update; one without requests changes nothing."""
        if num_requests == 0:
            return
        self._updates.append((num_requests, num_queries, num_hits))
        self._add(num_requests, num_queries, num_hits)
        while len(self._updates) > 1 and self._num_requests > self._max_requests:
            requests, queries, hits = self._updates.popleft()
            self._add(-requests, -queries, -hits)

    def _add(self, num_requests: int, num_queries: int, num_hits: int) -> None:
        self._num_requests += num_requests
        self._num_queries += num_queries
        self._num_hits += num_hits

    def clear(self) -> None:
        """Forget everything."""
        self._updates: deque[tuple[int, int, int]] = deque()
        self._num_requests = self._num_queries = self._num_hits = 0

    @property
    def value(self) -> float:
        """The rate, from 0 to 1; 0 before the first query."""
        return self._num_hits / self._num_queries if self._num_queries else 0.0


class RequestCounts(NamedTuple):
    """How many requests hold pages, wait for pages, and wait for another request's blocks."""

    running: int
    waiting_for_capacity: int
    deferred: int = 0

    @property
    def waiting(self) -> int:
        """All that wait."""
        return self.waiting_for_capacity + self.deferred


@dataclass(frozen=True, slots=True)
class ExplainMemory:
    """What is remembered for explanations and what has been forgotten, each by kind."""

    remembered: Mapping[str, int] = field(default_factory=dict)
    forgotten: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSnapshot:
    """Everything counted since the start, and the gauges of this moment.

    Tokens unless said otherwise. `prompt_tokens_computed` and `prompt_tokens_cached` add up to the prompts of
    all requests that got a first token, and of those that asked for none once they have ended well. The
    histograms of whole requests leave out all others, so the sum of `request_prefill_computed` is
    `prompt_tokens_computed` once all requests have ended.
    """

    model_name: str
    engine: str
    cache_settings: Mapping[str, str]
    requests: RequestCounts
    pages: PageUsage
    prefix_cache_queries: int
    prefix_cache_hits: int
    prefix_cache_hit_rate: float
    prompt_tokens_computed: int
    prompt_tokens_cached: int
    generation_tokens: int
    uncached_prefill_tokens: int
    num_preemptions: int
    preemption_recomputed_tokens: int
    block_rounding_tokens: int
    missed_tokens: Mapping[tuple[str, str], int]
    num_explain_failures: int
    explain_memory: ExplainMemory
    coalesced_tokens: int
    num_coalesce_timeouts: int
    num_finished: Mapping[FinishReason, int]
    num_page_evictions: int
    num_token_mismatches: int
    num_pinned_pages: int
    num_pin_refusals: int
    num_unplaced_marks: int
    num_unknown_fields: Mapping[str, int]
    first_token_seconds: HistogramSnapshot
    inter_token_seconds: HistogramSnapshot
    request_seconds: HistogramSnapshot
    request_prompt: HistogramSnapshot
    request_generation: HistogramSnapshot
    request_prefill_computed: HistogramSnapshot
    request_prefill_seconds: HistogramSnapshot
    uncached_prefill_seconds: HistogramSnapshot
    step_tokens: HistogramSnapshot

    @property
    def prompt_tokens(self) -> int:
        """All prompt tokens, wherever their K/V came from."""
        return self.prompt_tokens_computed + self.prompt_tokens_cached

    @property
    def page_usage(self) -> float:
        """The share of pages that are referenced, from 0 to 1; an idle cached page counts as free."""
        return self.pages.used / sum(self.pages)


class Metrics(CacheListener, SchedulerListener):
    """Listens to one engine; what it keeps per request goes when the request ends.

    One thread brings the events. Another may ask for snapshots at any time: every counter in them is right
    and never falls, but two of them may be one event apart. What begins with `read` is called then.
    """

    def __init__(
        self,
        *,
        model_name: str,
        max_model_len: int,
        cache: CacheConfig,
        layout: KVLayout,
        read_pages: Callable[[], PageUsage],
        read_pinned_pages: Callable[[], int],
        read_requests: Callable[[], RequestCounts],
        read_explain_memory: Callable[[], ExplainMemory] = ExplainMemory,
    ) -> None:
        self._model_name = model_name
        self._cache_settings = _describe_cache(cache, layout)
        self._is_caching = cache.enable_prefix_caching
        self._read_pages, self._read_requests = read_pages, read_requests
        self._read_pinned_pages, self._read_explain_memory = read_pinned_pages, read_explain_memory
        self._hit_rate = HitRate()
        self._last_token_times: dict[RequestId, float] = {}
        self._admission_times: dict[RequestId, float] = {}
        self._prefill_seconds: dict[RequestId, float] = {}
        self._num_finished = dict.fromkeys(FinishReason, 0)
        self._num_unknown_fields: dict[str, int] = {}
        self._prefix_cache_queries = self._prefix_cache_hits = 0
        self._prompt_tokens_computed = self._prompt_tokens_cached = self._generation_tokens = 0
        self._uncached_prefill_tokens = 0
        self._num_preemptions = self._preemption_recomputed_tokens = 0
        self._num_page_evictions = self._num_token_mismatches = self._num_pin_refusals = 0
        self._num_unplaced_marks = 0
        self._coalesced_tokens = self._num_coalesce_timeouts = self._block_rounding_tokens = 0
        self._missed_tokens: dict[tuple[str, str], int] = {("bypassed", ""): 0}
        self._num_explain_failures = 0
        self._first_token_seconds = Histogram(FIRST_TOKEN_SECONDS)
        self._inter_token_seconds = Histogram(INTER_TOKEN_SECONDS)
        self._request_seconds = Histogram(REQUEST_SECONDS)
        self._request_prompt = Histogram(token_bounds(max_model_len))
        self._request_generation = Histogram(token_bounds(max_model_len))
        self._request_prefill_computed = Histogram(token_bounds(max_model_len))
        self._request_prefill_seconds = Histogram(PREFILL_SECONDS)
        self._uncached_prefill_seconds = Histogram(PREFILL_SECONDS)
        self._step_tokens = Histogram(STEP_TOKENS)

    # The cache's events.

    def page_evicted(self, page: Page, digests: Sequence[BlockDigest]) -> None:
        """Count a page that lost its digests."""
        self._num_page_evictions += bool(digests)

    def token_mismatch(self, digest: BlockDigest) -> None:
        """Count a collision."""
        self._num_token_mismatches += 1

    def pin_refused(self, num_pages: int) -> None:
        """Count a pin that was not granted."""
        self._num_pin_refusals += 1

    def cleared(self) -> None:
        """Begin a new hit-rate window; the counters go on."""
        self._hit_rate.clear()

    # The scheduler's events.

    def request_admitted(self, request: Request, now: float) -> None:
        """Count its query and its hits, or its prompt as bypassed if it was not looked up."""
        self._admission_times[request.request_id] = now
        if not self._is_caching or request.skip_reading_cache:
            self._missed_tokens["bypassed", ""] += request.num_prompt_tokens
            return
        num_tokens, num_hits = request.num_prompt_tokens, _num_cached(request)
        self._prefix_cache_queries += num_tokens
        self._prefix_cache_hits += num_hits
        self._hit_rate.observe(1, num_tokens, num_hits)

    def request_preempted(self, request: Request) -> None:
        """Count a preemption."""
        self._num_preemptions += 1

    def tokens_recomputed(self, request: Request, num_tokens: int) -> None:
        """Count work done twice; it enters neither queries nor hits."""
        self._preemption_recomputed_tokens += num_tokens

    def tokens_rounded(self, request: Request, num_tokens: int) -> None:
        """Count what was cached and yet computed, for want of a whole block."""
        self._block_rounding_tokens += num_tokens

    def request_coalesced(self, request: Request, num_tokens: int) -> None:
        """Count the hits that a request had waited for."""
        self._coalesced_tokens += num_tokens

    def coalescing_timed_out(self, request: Request) -> None:
        """Count a wait that ran out."""
        self._num_coalesce_timeouts += 1

    def token_appended(self, request: Request, now: float) -> None:
        """Count an output token; with the first one, the prompt."""
        self._generation_tokens += 1
        last_time = self._last_token_times.get(request.request_id)
        self._last_token_times[request.request_id] = now
        if last_time is None:
            self._count_prompt(request)
            self._first_token_seconds.observe(now - request.arrival_time)
            self._end_prefill(request, now)
        else:
            self._inter_token_seconds.observe(now - last_time)

    def _count_prompt(self, request: Request) -> None:
        if not request.is_fork:
            self._prompt_tokens_computed += _num_computed(request)
            self._prompt_tokens_cached += _num_cached(request)

    def _end_prefill(self, request: Request, now: float) -> None:
        """Note how long it took from the first plan to the end of the prompt; a fork has no prefill."""
        admission_time = self._admission_times.pop(request.request_id, None)
        if admission_time is not None:
            self._prefill_seconds[request.request_id] = now - admission_time

    def request_finished(self, request: Request, now: float) -> None:
        """Count its end, and what it was in all if it had a first token or has computed a prompt for the cache."""
        assert request.finish_reason is not None, f"{request.request_id} ended without a reason"
        self._num_finished[request.finish_reason] += 1
        if request.params.is_warm_up and request.finish_reason is FinishReason.LENGTH:
            self._count_prompt(request)
            self._end_prefill(request, now)
        elif self._last_token_times.pop(request.request_id, None) is None:
            self._admission_times.pop(request.request_id, None)
            return
        self._request_seconds.observe(now - request.arrival_time)
        self._request_prompt.observe(request.num_prompt_tokens)
        self._request_generation.observe(request.num_output_tokens)
        self._request_prefill_computed.observe(_num_computed(request))
        self._count_prefill(request)

    def _count_prefill(self, request: Request) -> None:
        """Count its time, and apart if it reused nothing: only there time and tokens make a rate."""
        seconds = self._prefill_seconds.pop(request.request_id, None)
        if seconds is None:
            return
        self._request_prefill_seconds.observe(seconds)
        if _num_cached(request) == 0:
            self._uncached_prefill_seconds.observe(seconds)
            self._uncached_prefill_tokens += request.num_prompt_tokens

    def step_committed(self, plan: StepPlan, now: float) -> None:
        """Count the tokens of a step."""
        self._step_tokens.observe(plan.num_scheduled_tokens)

    # The explainer's, which has a thread of its own.

    def count_missed(self, books: Mapping[tuple[str, str], int]) -> None:
        """Count the tokens of an admitted request that were looked up and not reused, by cause and sub-cause."""
        for labels, num_tokens in books.items():
            self._missed_tokens[labels] = self._missed_tokens.get(labels, 0) + num_tokens

    def count_explain_failure(self) -> None:
        """Count a verdict that could not be made, which is our fault."""
        self._num_explain_failures += 1

    # The server's.

    def count_unknown_field(self, name: str) -> None:
        """Count a request field that nobody defines, by name.

        Names come from clients: after the first `MAX_UNKNOWN_FIELDS`, and for those that are too long or
        cannot be printed, the name is "other".
        """
        known = self._num_unknown_fields
        if name not in known and (
            len(known) >= MAX_UNKNOWN_FIELDS or len(name) > MAX_FIELD_NAME_LENGTH or not name.isprintable()
        ):
            name = OTHER_FIELD
        known[name] = known.get(name, 0) + 1

    def count_unplaced_mark(self) -> None:
        """Count a mark of a prompt to be kept whose place in the tokens is not known."""
        self._num_unplaced_marks += 1

    # Questions.

    def snapshot(self) -> MetricsSnapshot:
        """Return everything."""
        return MetricsSnapshot(
            model_name=self._model_name,
            engine="0",
            cache_settings=self._cache_settings,
            requests=self._read_requests(),
            pages=self._read_pages(),
            prefix_cache_queries=self._prefix_cache_queries,
            prefix_cache_hits=self._prefix_cache_hits,
            prefix_cache_hit_rate=self._hit_rate.value,
            prompt_tokens_computed=self._prompt_tokens_computed,
            prompt_tokens_cached=self._prompt_tokens_cached,
            generation_tokens=self._generation_tokens,
            uncached_prefill_tokens=self._uncached_prefill_tokens,
            num_preemptions=self._num_preemptions,
            preemption_recomputed_tokens=self._preemption_recomputed_tokens,
            block_rounding_tokens=self._block_rounding_tokens,
            missed_tokens=self._missed_tokens.copy(),
            num_explain_failures=self._num_explain_failures,
            explain_memory=self._read_explain_memory(),
            coalesced_tokens=self._coalesced_tokens,
            num_coalesce_timeouts=self._num_coalesce_timeouts,
            num_finished=self._num_finished.copy(),
            num_page_evictions=self._num_page_evictions,
            num_token_mismatches=self._num_token_mismatches,
            num_pinned_pages=self._read_pinned_pages(),
            num_pin_refusals=self._num_pin_refusals,
            num_unplaced_marks=self._num_unplaced_marks,
            num_unknown_fields=self._num_unknown_fields.copy(),
            first_token_seconds=self._first_token_seconds.snapshot(),
            inter_token_seconds=self._inter_token_seconds.snapshot(),
            request_seconds=self._request_seconds.snapshot(),
            request_prompt=self._request_prompt.snapshot(),
            request_generation=self._request_generation.snapshot(),
            request_prefill_computed=self._request_prefill_computed.snapshot(),
            request_prefill_seconds=self._request_prefill_seconds.snapshot(),
            uncached_prefill_seconds=self._uncached_prefill_seconds.snapshot(),
            step_tokens=self._step_tokens.snapshot(),
        )


def _num_cached(request: Request) -> int:
    """The prompt tokens it did not have to compute."""
    assert request.num_cached_tokens is not None, f"{request.request_id} was never admitted"
    return request.num_cached_tokens


def _num_computed(request: Request) -> int:
    """The prompt tokens it had to compute; a fork's were computed by another."""
    return 0 if request.is_fork else request.num_prompt_tokens - _num_cached(request)


def _describe_cache(cache: CacheConfig, layout: KVLayout) -> dict[str, str]:
    """Return every setting of the cache as text, and `num_gpu_blocks`, from which vLLM's tools take its capacity."""
    settings = {
        **asdict(cache),
        **asdict(layout),
        "num_gpu_blocks": layout.num_pages * layout.blocks_per_page,
    }
    return {name: str(settings[name]) for name in sorted(settings)}
