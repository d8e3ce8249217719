"""Simulator = engine: a recorded run, played again, reuses the same blocks."""

import random
from dataclasses import replace

import pytest

from anaphora.config import EVICTION_POLICIES, EvictionPolicyName, KVLayout, SchedulerConfig
from anaphora.errors import TraceError
from anaphora.sim.steps import StepReplay, departures
from anaphora.sim.trace import Trace
from tests.sim.recorded import EvictionLog, RecordedRun

LAYOUTS = [
    KVLayout(block_size=4, page_size=4, num_pages=15),
    KVLayout(block_size=4, page_size=8, num_pages=9, min_prefill_tokens=2),
    KVLayout(block_size=2, page_size=8, num_pages=9, min_prefill_tokens=2, can_copy_part=False),
]


def busy_run(run: RecordedRun, seed: int, num_requests: int = 60, *, most_sequences: int = 2) -> None:
    """Conversations that go on, shared beginnings, forks and clients that go away, more than the pages hold."""
    draw = random.Random(seed)
    beginnings = [[100 * number + i for i in range(draw.randrange(4, 20))] for number in range(4)]
    talks: list[list[int]] = []
    for number in range(num_requests):
        follows = bool(talks) and draw.random() < 0.5
        before = draw.choice(talks) if follows else draw.choice(beginnings)
        tokens = [*before, *(draw.randrange(256) for _ in range(draw.randrange(1, 8)))][:40]
        sent = run.add(f"r{number}", tokens, draw.randrange(0, 9), n=1)
        if draw.random() < 0.2:
            sent = run.add(f"n{number}", tokens[::-1], draw.randrange(1, 6), n=most_sequences)
        for _ in range(draw.randrange(4)):
            run.step()
        if draw.random() < 0.1:
            run.abort(f"r{number}")
        talks += [list(request.token_ids) for request in sent]
    run.run()


def replayed(trace: Trace) -> tuple[int, list[tuple[str, int]]]:
    """Return how many requests depart from the recording, and what happened to the pages."""
    log = EvictionLog()
    return len(departures(StepReplay(trace, listener=log).run())), log.events


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.block_size}/{layout.page_size}")
@pytest.mark.parametrize("policy", EVICTION_POLICIES)
def test_a_recorded_run_reuses_the_same_blocks_when_it_is_played_again(
    layout: KVLayout, policy: EvictionPolicyName
) -> None:
    """And evicts the same pages in the same order, with preemptions, forks and clients that go away."""
    run = RecordedRun(layout, policy=policy)
    busy_run(run, seed=7)
    trace = run.trace()
    assert any(kind.startswith("page") for kind, _ in run.log.events), "nothing was evicted"
    assert any(request.recorded and request.recorded.num_preemptions for request in trace.requests)
    assert any(run.reuse.cached_tokens.values())
    comparisons = StepReplay(trace).run()
    reused = {c.number: len(c.replayed_ids) * layout.block_size for c in comparisons}
    assert sorted(reused) == sorted({c.number for c in comparisons})
    assert replayed(trace) == (0, run.log.events)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_traffic(seed: int) -> None:
    """Six more runs, one with exact reuse and one with a small budget."""
    config = SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=8 if seed == 1 else 32)
    run = RecordedRun(LAYOUTS[seed % 3], config=config, exact_reuse=seed == 0, key=b"k" * 16)
    busy_run(run, seed, 80)
    assert replayed(run.trace()) == (0, run.log.events)


def test_the_blocks_compared_are_those_of_the_engine() -> None:
    """Not only a number of tokens: the leading blocks by name."""
    run = RecordedRun(LAYOUTS[0])
    run.add("a", range(10), 3)
    run.run()
    run.add("b", [*range(8), 50, 51], 3)
    run.run()
    first, second = StepReplay(run.trace()).run()
    assert (first.recorded_ids, first.replayed_ids) == ((), ())
    assert second.recorded_ids == second.replayed_ids == (0, 1)
    assert run.reuse.cached_tokens == {"a": 0, "b": 8}


def test_who_asks_for_the_log_probabilities_of_a_prompt_reads_no_cache_and_is_cut_smaller() -> None:
    """Into chunks of 256 rows, which moves everybody who runs beside it."""
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=512)
    run = RecordedRun(KVLayout(block_size=4, page_size=4, num_pages=400), config=config)
    run.add("first", range(600), 3)
    run.run()
    run.add("scored", range(600), 3, prompt_logprobs=1)
    run.add("beside", [*range(400), *range(2000, 2600)], 3)
    run.step()
    run.add("late", range(590), 3)
    run.run()
    assert replayed(run.trace()) == (0, run.log.events)
    assert [len(found.replayed_ids) for found in StepReplay(run.trace()).run()] == [0, 0, 100, 120]


def test_a_recording_of_another_pool_departs() -> None:
    """So the comparison can fail: with fewer pages than were recorded, less is found."""
    run = RecordedRun(LAYOUTS[0])
    busy_run(run, seed=7)
    trace = run.trace()
    assert trace.engine is not None
    smaller = replace(trace.engine, layout=replace(trace.engine.layout, num_pages=14), max_model_len=52)
    num_departures, _ = replayed(replace(trace, engine=smaller))
    assert num_departures > 0


def test_a_trace_that_says_nothing_of_reuse_is_refused() -> None:
    trace = Trace(format="Mooncake", block_size=4, requests=(), counts_tail=True, page_size=4)
    with pytest.raises(TraceError, match="only a recording"):
        StepReplay(trace)
