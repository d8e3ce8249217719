"""What a report says, for machines and for people."""

import json

from anaphora.sim.cost import CostModel
from anaphora.sim.order import Hits, Point
from anaphora.sim.recommend import Recommendation
from anaphora.sim.report import Costs, Report, advice, spread
from tests.sim.recorded import RecordedRun
from tests.sim.test_steps import LAYOUTS
from tests.sim.traces import public_trace

TRACE = public_trace([[0, 1], [0, 1], [0, 2]], tails=[4, 1, 4])
HITS = Hits([0, 5, 4], [8, 5, 8])
RECOMMENDATION = Recommendation(
    pages=3,
    policy="slru",
    block_size=4,
    hit_rate=0.5,
    gain_over_lru=0.02,
    missing_to_unbounded=0.1,
    confidence="low",
    reasons=("only 2 requests are counted",),
)


def report(costs: Costs | None = None) -> Report:
    return Report(
        file="t.jsonl",
        trace=TRACE,
        mode="order",
        unbounded=HITS,
        points=[Point(policy="lru", pages=3, hits=HITS, num_refused=1)],
        block_sizes={4: 0.7},
        recommendation=RECOMMENDATION,
        costs=costs,
        partial="line 4 is not JSON",
    )


def test_the_object_for_machines() -> None:
    found = json.loads(json.dumps(report().as_json()))
    assert found["unbounded"] == {"hit_rate_all": 9 / 21, "hit_rate_last_half": 9 / 13}
    assert found["curve"] == [
        {
            "policy": "lru",
            "pages": 3,
            "hit_rate_all": 9 / 21,
            "hit_rate_last_half": 9 / 13,
            "refused_requests": 1,
        }
    ]
    assert found["recommendation"]["policy"] == "slru"
    assert (found["partial"], found["cost"], found["recorded"]) == ("line 4 is not JSON", None, None)
    assert (found["trace"]["prompt_tokens"], found["trace"]["unique_blocks"]) == (21, 3)


def test_warm_up_and_denominator_are_said() -> None:
    said = report().definitions()
    assert said["denominator"] == "all: 21 tokens of 3 requests; last half: 13 tokens of 2"
    assert said["warm_up"].endswith("the first 1 requests only warm it")


def test_a_request_alone_waits_for_what_is_not_cached() -> None:
    costs = Costs(model=CostModel(prefill_token_s=2.0), source="test", most_tokens_per_step=64)
    assert costs.ttfts_s(HITS) == [16.0, 0.0, 8.0]
    (point,) = report(costs).as_json()["curve"]
    assert point["ttft_alone_s"] == {"mean": 8.0, "p50": 8.0, "p90": 16.0, "p99": 16.0}


def test_no_times_have_no_spread() -> None:
    assert set(spread([]).values()) == {0.0}


def test_the_advice_names_what_it_is_against_and_how_sure_it_is() -> None:
    lines = advice(RECOMMENDATION, TRACE)
    assert lines[0] == "3 pages of 4 tokens (12 tokens of K/V), policy slru, block size 4"
    assert "+2.0 points against lru" in lines[1]
    assert lines[-1] == "confidence: low (only 2 requests are counted)"


def test_for_a_recording_the_advice_is_a_command_line() -> None:
    """The null page counts there."""
    run = RecordedRun(LAYOUTS[0])
    run.add("a", range(10))
    run.run()
    lines = advice(RECOMMENDATION, run.trace())
    assert "anaphora serve --num-pages 4 --eviction-policy slru --block-size 4" in lines
