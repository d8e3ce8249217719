"""Timed mode: every time is one that can be worked out by hand."""

from dataclasses import replace

import pytest

from anaphora.config import SchedulerConfig
from anaphora.sim.cost import CostModel
from anaphora.sim.order import OrderReplay
from anaphora.sim.timed import TimedPoint, TimedReplay, percentile
from anaphora.sim.trace import Trace, TraceRequest

PER_TOKEN = CostModel(prefill_token_s=1.0, decode_s=1.0)


def trace(*requests: tuple[float, int, int, tuple[int, ...]]) -> Trace:
    """Return a trace of (arrival, prompt, outputs, whole blocks of four)."""
    return Trace(
        format="test",
        block_size=4,
        page_size=4,
        counts_tail=False,
        requests=tuple(TraceRequest(length, outputs, ids, at) for at, length, outputs, ids in requests),
    )


def play(
    what: Trace,
    pages: int = 50,
    *,
    cost: CostModel = PER_TOKEN,
    budget: int = 64,
    seqs: int = 8,
    wait_ms: int = 60_000_000,
) -> TimedPoint:
    config = SchedulerConfig(max_num_seqs=seqs, max_num_batched_tokens=budget, coalesce_deadline_ms=wait_ms)
    return TimedReplay(what, config, cost).play("lru", pages)


def test_the_first_token_comes_with_the_step_that_ends_the_prompt() -> None:
    point = play(trace((5.0, 10, 3, (0, 1))))
    (turn,) = point.turns
    assert (turn.admitted_s, turn.first_token_s, turn.finished_s) == (0.0, 10.0, 12.0)
    assert (point.ttfts_s, point.num_steps, point.end_s) == ([10.0], 3, 12.0)


def test_time_begins_with_the_first_request_whatever_its_clock_says() -> None:
    early, late = (play(trace((at, 10, 1, (0, 1)), (at + 20, 10, 1, (0, 1)))) for at in (-50.0, 1.75e9))
    assert early.ttfts_s == late.ttfts_s == [10.0, 2.0]
    assert early.end_s == late.end_s == 22.0


def test_a_second_request_finds_what_the_first_has_left() -> None:
    point = play(trace((0.0, 10, 1, (0, 1)), (20.0, 10, 1, (0, 1))))
    assert point.hits.hit_tokens == [0, 8]
    assert point.ttfts_s == [10.0, 2.0]


def test_who_comes_while_a_step_runs_waits_for_its_end() -> None:
    point = play(trace((0.0, 10, 1, (0, 1)), (1.0, 6, 1, (2,))))
    assert point.queueing_s == [0.0, 9.0]
    assert point.ttfts_s == [10.0, 15.0]
    assert point.most_waiting == 1


def test_who_needs_blocks_that_are_being_computed_waits_for_them() -> None:
    """The first prompt takes two steps; in the second there is room for the other one, whose fifth block is pending."""
    twins = trace((0.0, 20, 1, (0, 1, 2, 3, 4)), (1.0, 24, 1, (0, 1, 2, 3, 4, 5)))
    together, apart = play(twins, budget=16), play(twins, budget=16, wait_ms=0)
    assert (together.num_coalesced, together.coalesced_tokens) == (1, 4)
    assert together.hits.hit_tokens == [0, 20]
    assert (apart.num_coalesced, apart.hits.hit_tokens) == (0, [0, 16])


def test_pages_that_run_out_cost_somebody_his_place() -> None:
    crowd = trace(*((0.0, 8, 12, (2 * n, 2 * n + 1)) for n in range(3)))
    point = play(crowd, pages=9)
    assert point.num_preemptions > 0
    assert all(turn.finished_s is not None for turn in point.turns)
    assert play(crowd, pages=50).num_preemptions == 0


def test_what_can_never_fit_is_refused_and_counts_as_not_found() -> None:
    point = play(trace((0.0, 40, 1, tuple(range(10))), (0.0, 8, 1, (20, 21))), pages=4)
    assert (point.num_refused, point.hits.hit_tokens) == (1, [0, 0])
    assert point.ttfts_s == [8.0]


@pytest.mark.parametrize("watermark", [0.0, 0.5])
def test_pages_that_nobody_could_fill_take_no_memory_and_change_nothing(watermark: float) -> None:
    """A pool of as many pages as were asked for was made, and the machine had no memory left."""
    crowd = trace(*((0.0, 8, 12, (2 * (n % 3), 2 * (n % 3) + 1)) for n in range(9)))
    config = SchedulerConfig(max_num_seqs=9, max_num_batched_tokens=64, watermark=watermark)
    replay = TimedReplay(crowd, config, PER_TOKEN)
    plenty, endless = replay.play("lru", 500), replay.play("lru", 10**15)
    assert endless.pages == 10**15
    assert endless == replace(plenty, pages=10**15)


def test_a_request_without_outputs_only_warms_the_cache() -> None:
    point = play(trace((0.0, 8, 0, (0, 1)), (9.0, 9, 1, (0, 1))))
    assert point.hits.hit_tokens == [0, 8]
    assert point.turns[0].ttft_s == 8.0


def test_far_apart_requests_find_what_order_mode_finds() -> None:
    """But for outputs, which order mode does not store, when pages suffice."""
    requests = [(1000.0 * n, 9 + n % 3, 2, (n % 4, 4 + n % 4)) for n in range(20)]
    spaced = trace(*requests)
    assert play(spaced).hits.hit_tokens == OrderReplay(spaced).play("lru", 50).hits.hit_tokens


def test_progress_counts_every_request_once() -> None:
    told: list[int] = []
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64)
    TimedReplay(trace((0.0, 8, 2, (0, 1)), (0.0, 400, 1, ())), config, PER_TOKEN, told.append).play("lru", 9)
    assert sum(told) == 2


def test_a_trace_without_times_is_a_mistake_of_the_caller() -> None:
    timeless = trace((0.0, 8, 2, (0, 1)))
    timeless = replace(timeless, requests=(replace(timeless.requests[0], arrival_s=None),))
    with pytest.raises(AssertionError, match="nobody knows"):
        TimedReplay(timeless, SchedulerConfig(), PER_TOKEN)


@pytest.mark.parametrize(
    "values, share, expected",
    [([], 0.5, 0.0), ([3.0], 0.99, 3.0), ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0), ([1.0, 2.0], 0.9, 2.0)],
)
def test_percentiles_are_values_that_occur(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected
