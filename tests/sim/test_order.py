"""Order mode: the figures that are known, and sets as a twin."""

from pathlib import Path

import pytest
from hypothesis import given

from anaphora.cli.trace_files import ReadOptions, read_trace
from anaphora.config import EVICTION_POLICIES, KVLayout, SchedulerConfig
from anaphora.sim.order import Hits, OrderReplay
from anaphora.sim.trace import Trace, ceiling
from tests.sim.recorded import RecordedRun
from tests.sim.traces import engine_trace, paths, public_trace

TRACES = Path(__file__).parents[2] / "traces"
PAGES = (1756, 3513, 7027, 14054, 28108)
REFERENCE = {
    "conversation": (
        (37.362, 39.811),
        (5.4, 7.7, 16.4, 26.1, 33.6),
        (25.3, 32.9, 39.0, 39.8, 39.8),
    ),
    "synthetic": (
        (65.124, 86.275),
        (20.3, 31.9, 50.3, 69.9, 83.3),
        (46.9, 62.3, 75.9, 86.3, 86.3),
    ),
}


def no_tokenizer() -> None:
    raise AssertionError("this trace needs none")


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_figures_come_out(name: str) -> None:
    """Of the public traces, as their page states them: the ceiling exactly, LRU and Belady within 0.1 points."""
    path = TRACES / f"{name}_trace.jsonl.gz"
    trace = read_trace(path, ReadOptions(), no_tokenizer)  # type: ignore[arg-type]
    (ceiling_all, ceiling_half), lru, belady = REFERENCE[name]
    replay = OrderReplay(trace)
    unbounded = replay.unbounded()
    assert 100 * unbounded.rate_all == pytest.approx(ceiling_all, abs=0.0006)
    assert 100 * unbounded.rate_last_half == pytest.approx(ceiling_half, abs=0.0006)
    assert list(unbounded.hit_tokens) == ceiling(trace)
    for pages, expected_lru, expected_belady in zip(PAGES, lru, belady, strict=True):
        assert 100 * replay.play("lru", pages).hits.rate_last_half == pytest.approx(expected_lru, abs=0.1)
        assert 100 * replay.belady(pages).hits.rate_last_half == pytest.approx(expected_belady, abs=0.06)


@given(paths(most_nodes=12, most_prompts=12))
def test_pages_without_end_find_what_sets_find(prompts: list[list[int]]) -> None:
    tails = [1 + len(ids) % 4 for ids in prompts]
    trace = public_trace(prompts, tails=tails)
    assert OrderReplay(trace).unbounded().hit_tokens == ceiling(trace)


@given(paths(most_nodes=12, most_prompts=12))
def test_they_do_so_by_the_engines_law_and_in_larger_pages(prompts: list[list[int]]) -> None:
    lengths = [(4 * len(ids) + len(ids) % 3, ids) for ids in prompts]
    for page_size in (4, 8, 16):
        trace = engine_trace(lengths, block_size=4, page_size=page_size)
        found = OrderReplay(trace).unbounded()
        assert found.hit_tokens == ceiling(trace)


def test_least_recently_used_pages_go_first_and_the_end_of_a_prompt_before_its_beginning() -> None:
    trace = public_trace([[0, 1, 2], [3], [0, 1, 2]])
    assert OrderReplay(trace).play("lru", 3).hits.hit_tokens == [0, 0, 8]


def test_a_prompt_larger_than_the_pool_is_refused_and_counts_as_not_found() -> None:
    point = OrderReplay(public_trace([[0], [1, 2, 3], [0]])).play("lru", 2)
    assert (point.num_refused, point.hits.hit_tokens) == (1, [0, 0, 4])
    assert point.hits.rate_all == 4 / 20


def test_pages_that_nobody_could_fill_take_no_memory() -> None:
    """A pool of as many pages as were asked for was made, and the machine had no memory left."""
    replay = OrderReplay(public_trace([[0, 1], [2], [0, 1, 3]]))
    for policy in EVICTION_POLICIES:
        assert replay.play(policy, 10**15).hits.hit_tokens == [0, 0, 8]


def test_the_last_half_leaves_the_first_out() -> None:
    hits = Hits([0, 0, 3, 9], [10, 10, 10, 30])
    assert (hits.rate_all, hits.rate_last_half, hits.rate(2, 3)) == (12 / 60, 12 / 40, 0.3)
    assert Hits([], []).rate_all == 0.0


def test_progress_is_told_once_for_each_request() -> None:
    told: list[int] = []
    trace = public_trace([[number] for number in range(300)])
    OrderReplay(trace, told.append).play("lru", 8)
    assert told == [128, 128, 44]


def recorded_one_by_one(layout: KVLayout, policy: str) -> tuple[RecordedRun, Trace]:
    run = RecordedRun(
        layout,
        config=SchedulerConfig(max_num_seqs=1, max_num_batched_tokens=512),
        policy=policy,  # type: ignore[arg-type]
    )
    told: list[list[int]] = []
    for number in range(60):
        before = told[(7 * number) % len(told)] if number % 3 == 1 else [number % 5] * (4 + number % 7)
        (request,) = run.add(f"r{number}", [*before, number, 9][:30], 1 + number % 6)
        run.run()
        told.append(list(request.token_ids))
    return run, run.trace()


@pytest.mark.parametrize("policy", EVICTION_POLICIES)
@pytest.mark.parametrize(
    "layout", [KVLayout(4, 4, 14), KVLayout(4, 8, 8, 2)], ids=lambda layout: str(layout.page_size)
)
def test_one_request_after_another_is_what_the_engine_did(layout: KVLayout, policy: str) -> None:
    """Outputs and evictions included: a run without concurrency needs no steps to be repeated."""
    run, trace = recorded_one_by_one(layout, policy)
    assert any(kind.startswith("page") for kind, _ in run.log.events)
    hits = OrderReplay(trace).play(policy, layout.num_usable_pages).hits  # type: ignore[arg-type]
    assert hits.hit_tokens == list(run.reuse.cached_tokens.values())
    assert hits.hit_tokens == trace.recorded_tokens
    assert sum(hits.hit_tokens) > 0


@pytest.mark.parametrize("exact_reuse", [False, True])
@pytest.mark.parametrize("page_size", [4, 8])
def test_without_evictions_a_recording_reaches_the_ceiling(*, exact_reuse: bool, page_size: int) -> None:
    """With exact reuse, replies count only once a prompt has held them."""
    layout = KVLayout(4, page_size, 2000 // page_size, 2)
    run = RecordedRun(layout, config=SchedulerConfig(max_num_seqs=1), exact_reuse=exact_reuse)
    told: list[list[int]] = []
    for number in range(40):
        before = told[-1] if number % 3 else [number % 4] * 6
        (request,) = run.add(f"r{number}", [*before, number], 5)
        run.run()
        told.append(list(request.token_ids))
    trace = run.trace()
    assert OrderReplay(trace).unbounded().hit_tokens == ceiling(trace) == trace.recorded_tokens


def test_who_asks_for_the_log_probabilities_of_a_prompt_finds_nothing() -> None:
    """As the engine has it, who does not read the cache fills it only; order mode counted what was there as found."""
    run = RecordedRun(KVLayout(4, 4, 20), config=SchedulerConfig(max_num_seqs=1))
    for number in range(4):
        run.add(f"r{number}", range(10), 1, prompt_logprobs=0 if number % 2 else None)
        run.run()
    trace = run.trace()
    assert trace.recorded_tokens == [0, 0, 8, 0]
    replay = OrderReplay(trace)
    for found in (replay.unbounded(), replay.play("lru", 4).hits, replay.belady(2).hits):
        assert found.hit_tokens == [0, 0, 8, 0]
    assert ceiling(trace) == [0, 0, 8, 0]


def test_belady_keeps_nothing_for_who_does_not_read_the_cache() -> None:
    run = RecordedRun(KVLayout(4, 4, 20), config=SchedulerConfig(max_num_seqs=1))
    for name, tokens, logprobs in (("a", 5, None), ("b", 6, None), ("c", 5, 0), ("d", 6, None)):
        run.add(name, [tokens] * 5, 1, prompt_logprobs=logprobs)
        run.run()
    assert OrderReplay(run.trace()).belady(1).hits.hit_tokens == [0, 0, 0, 4]
