"""Cases 2, 12, 27, 28, 44, 45, 59, 63, 65 and 67 of the conformance table, as far as a scheduler has a part in them."""

import pytest

from anaphora.cache.page import PageCopy
from anaphora.cache.pool import PageUsage
from anaphora.config import CacheConfig, KVLayout
from anaphora.errors import ContextLengthError
from anaphora.ids import PageId, RequestId
from anaphora.metrics.counters import Metrics, MetricsSnapshot, RequestCounts
from anaphora.request import SamplingParams
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory

COMMON = numbers(0, 48)
ELEVEN_PAGES = KVLayout(16, 16, 11)


def greedy(max_tokens: int) -> SamplingParams:
    """Return greedy parameters."""
    return SamplingParams(max_tokens=max_tokens, temperature=0.0)


def make_metrics() -> Metrics:
    """Return metrics that hear of requests, and read no gauges."""
    return Metrics(
        model_name="m",
        max_model_len=2_000,
        cache=CacheConfig(),
        layout=ELEVEN_PAGES,
        read_pages=lambda: PageUsage(0, 0, 10),
        read_pinned_pages=lambda: 0,
        read_requests=lambda: RequestCounts(0, 0),
    )


def queries_and_hits(seen: MetricsSnapshot) -> tuple[int, int]:
    """Return both counters."""
    return seen.prefix_cache_queries, seen.prefix_cache_hits


def pages(story: SchedulerStory, name: str) -> list[int]:
    """Return the pages of a request."""
    return [int(page_id) for page_id in story.manager.table(RequestId(name)).page_ids]


@pytest.mark.parametrize(
    ("page_size", "r0", "r1", "num_free", "copies"),
    [
        (16, [1, 2, 3, 4], [1, 2, 3, 5], 5, ()),
        (32, [1, 2], [1, 3], 7, (PageCopy(PageId(2), PageId(3), 16),)),
    ],
)
def test_case_2_a_prompt_that_comes_before_the_commit_waits_and_then_hits(
    page_size: int, r0: list[int], r1: list[int], num_free: int, copies: tuple[PageCopy, ...]
) -> None:
    """48 common tokens: R1 computes five of its own, one step later than R0, on the pages of R0."""
    story = SchedulerStory(KVLayout(16, page_size, 11))
    story.add("R0", COMMON + numbers(1000, 7), greedy(4))
    story.add("R1", COMMON + numbers(2000, 5), greedy(4))
    assert story.chunks(story.step()) == [("R0", 0, 55)]
    assert story.scheduler.num_deferred == 1
    plan = story.step()
    assert story.chunks(plan) == [("R0", 55, 1), ("R1", 48, 5)]
    assert plan.copies == copies
    assert (pages(story, "R0"), pages(story, "R1")) == (r0, r1)
    assert story.manager.table(RequestId("R0")).pages[0].ref_count == 2
    assert story.manager.pool.num_free_pages == num_free


@pytest.mark.parametrize(
    ("layout", "num_tokens", "caching"),
    [
        (KVLayout(4, 4, 5), 20, False),
        (KVLayout(4, 8, 5), 36, False),
        (KVLayout(16, 16, 6), 96, True),
        (KVLayout(16, 32, 6), 192, True),
    ],
)
def test_cases_12_and_28_a_prompt_larger_than_the_pool_is_refused_at_arrival(
    layout: KVLayout, num_tokens: int, *, caching: bool
) -> None:
    """Of pages of one block, four hold 16 tokens and five hold 80; of two blocks, twice as many."""
    story = SchedulerStory(layout, caching=caching)
    limit = layout.num_usable_pages * layout.page_size
    with pytest.raises(ContextLengthError, match=f"the prompt has {num_tokens} tokens.*context is {limit}"):
        story.add("R", numbers(0, num_tokens), greedy(1))
    assert not story.scheduler.has_work
    assert story.manager.pool.num_free_pages == layout.num_usable_pages


def test_case_27_a_request_that_does_not_fit_now_waits_and_lets_others_pass() -> None:
    """D needs three pages and its three idle hits, and four pages are free; E takes one of them."""
    story = SchedulerStory(ELEVEN_PAGES)
    story.add("A", numbers(0, 48), greedy(30))
    story.step()
    story.add("B", numbers(0, 96), greedy(1))
    story.step()
    story.add("C", numbers(900, 32), greedy(30))
    story.step()
    assert story.manager.pool.num_free_pages == 4
    story.add("D", numbers(0, 144), greedy(1))
    story.add("E", numbers(2000, 9), greedy(1))
    assert ("E", 0, 9) in story.chunks(story.step())
    assert [request.request_id for request in story.scheduler.requests()] == ["A", "C", "D"]
    assert story.requests["D"].num_cached_tokens is None
    story.run()
    assert len(story.outputs("D")) == 1


def test_case_44_a_prompt_that_has_to_wait_is_queried_once() -> None:
    """48 tokens of which 32 are cached; at first two pages are free, and both are its own hits."""
    metrics = make_metrics()
    story = SchedulerStory(ELEVEN_PAGES, listener=metrics)
    story.add("warm", numbers(0, 33), greedy(1))
    story.run()
    story.add("A", numbers(1000, 120), greedy(1))
    story.add("R", numbers(0, 48), greedy(1))
    assert story.chunks(story.step()) == [("A", 0, 120)]
    assert queries_and_hits(metrics.snapshot()) == (33 + 120, 0)
    assert story.chunks(story.step()) == [("R", 32, 16)]
    assert queries_and_hits(metrics.snapshot()) == (33 + 120 + 48, 32)


def test_case_45_a_resume_is_no_query_and_no_hit() -> None:
    """B gives way to A, whose sixth page is B's last: B finds 64 tokens again and computes 16 a second time."""
    metrics = make_metrics()
    story = SchedulerStory(ELEVEN_PAGES, listener=metrics)
    story.add("A", numbers(0, 80), greedy(4))
    story.add("B", numbers(500, 80), greedy(4))
    story.step()
    assert queries_and_hits(metrics.snapshot()) == (160, 0)
    assert story.chunks(story.step()) == [("A", 80, 1)]
    story.run()
    seen = metrics.snapshot()
    assert (seen.num_preemptions, seen.preemption_recomputed_tokens) == (1, 16)
    assert queries_and_hits(seen) == (160, 0)
    assert (seen.prompt_tokens_computed, seen.prompt_tokens_cached) == (160, 0)


def test_case_59_the_prompt_of_four_sequences_is_queried_once() -> None:
    """50 tokens, n = 4."""
    metrics = make_metrics()
    story = SchedulerStory(ELEVEN_PAGES, listener=metrics)
    story.add_n(4, "A", numbers(0, 50), greedy(3))
    story.run()
    assert queries_and_hits(metrics.snapshot()) == (50, 0)
    assert metrics.snapshot().prompt_tokens == 50


def test_case_63_a_prompt_below_a_block_is_queried_and_never_hit() -> None:
    """15 tokens twice."""
    metrics = make_metrics()
    story = SchedulerStory(ELEVEN_PAGES, listener=metrics)
    for name in "AB":
        story.add(name, numbers(0, 15), greedy(1))
        story.run()
    assert queries_and_hits(metrics.snapshot()) == (30, 0)
    assert len(story.manager.pool.index) == 0


@pytest.mark.parametrize(("num_tokens", "is_admitted"), [(87 * 16, True), (87 * 16 + 1, False)])
def test_case_65_beside_a_running_request_a_tenth_of_the_pages_stays_free(
    num_tokens: int, *, is_admitted: bool
) -> None:
    """99 usable pages, A holds two of them: 97 are free, and ten of 100 are to stay so."""
    story = SchedulerStory(KVLayout(16, 16, 100), watermark=0.1)
    story.add("A", numbers(0, 16), greedy(50))
    story.step()
    story.add("B", numbers(5000, num_tokens), greedy(1))
    assert ("B" in [name for name, _, _ in story.chunks(story.step())]) is is_admitted


def test_case_65_alone_a_request_may_take_every_page() -> None:
    """1,583 tokens and one output are all that 99 pages hold."""
    story = SchedulerStory(KVLayout(16, 16, 100), watermark=0.1, budget=2_000)
    story.add("B", numbers(5000, 1_583), greedy(1))
    assert story.chunks(story.step()) == [("B", 0, 1_583)]


def test_case_65_of_a_running_request_no_page_is_withheld() -> None:
    """A and B decode on into the ten pages that no waiting request gets."""
    story = SchedulerStory(KVLayout(16, 16, 100), watermark=0.1, budget=2_000)
    story.add("A", numbers(0, 16), greedy(50))
    story.step()
    story.add("B", numbers(5000, 87 * 16), greedy(50))
    least = 99
    while story.scheduler.has_work:
        story.step()
        least = min(least, story.manager.pool.num_free_pages)
    # Looked at after commits: A ends in the step that takes its fifth page, B by then has ninety.
    assert least == 99 - 4 - 90
    assert [request.num_preemptions for request in story.requests.values()] == [0, 0]


@pytest.mark.parametrize("page_size", [16, 32])
def test_case_67_cached_and_computed_tokens_add_up_to_the_prompt(page_size: int) -> None:
    """1,000 tokens: first all computed, then 400 cached, then all but 8, which are the last block's."""
    metrics = make_metrics()
    story = SchedulerStory(KVLayout(16, page_size, 200), budget=2_000, listener=metrics)
    prompts = [numbers(0, 1_000), numbers(0, 400) + numbers(5000, 600), numbers(0, 1_000)]
    seen = []
    for turn, prompt in enumerate(prompts):
        request = story.add(f"R{turn}", prompt, greedy(1))
        story.run()
        seen.append((1_000 - (request.num_cached_tokens or 0), request.num_cached_tokens))
    assert seen == [(1_000, 0), (600, 400), (8, 992)]
    total = metrics.snapshot()
    assert (total.prompt_tokens_computed, total.prompt_tokens_cached) == (1_608, 1_392)
    assert total.prompt_tokens == 3_000
