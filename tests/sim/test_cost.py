"""The cost model and its fit."""

from dataclasses import astuple

import pytest

from anaphora.ids import PageId, RequestId
from anaphora.scheduler.plan import ScheduledChunk, StepPlan
from anaphora.sim.cost import CostModel, Sample, Work, fit, num_pairs

TRUE = CostModel(
    step_s=0.004, prefill_token_s=0.0005, prefill_pair_s=1e-7, decode_s=0.002, decode_pair_s=1e-6
)


def works() -> list[Work]:
    prefills = [Work.of_prefill(0, length, 512) for length in (64, 300, 512, 1000, 3000)]
    decodes = [Work.of_decodes(start, 8, n) for start in (64, 2000) for n in (1, 4)]
    return [*prefills, *decodes]


def test_a_token_attends_to_all_before_it_and_itself() -> None:
    assert [num_pairs(0, 3), num_pairs(2, 3), num_pairs(3, 3)] == [6, 3, 0]
    assert num_pairs(0, 5) == num_pairs(0, 2) + num_pairs(2, 5)


def test_the_work_of_a_step_is_that_of_its_chunks() -> None:
    chunks = (
        ScheduledChunk(RequestId("a"), [1], 9, [PageId(1)], is_decode=True),
        ScheduledChunk(RequestId("b"), [1, 2, 3], 2, [PageId(2)], is_decode=False),
    )
    assert Work.of_plan(StepPlan(1, chunks)) == Work(1, 3, 3 + 4 + 5, 1, 10)


def test_a_prefill_alone_takes_as_many_steps_as_the_budget_makes_of_it() -> None:
    assert Work.of_prefill(100, 1124, 512) == Work(2, 1024, num_pairs(100, 1124))
    assert Work.of_decodes(10, 3, 2) == Work(3, 0, 0, 6, 2 * (11 + 12 + 13))


def test_a_fit_finds_the_model_that_made_the_times() -> None:
    found = fit([Sample(work, TRUE.time(work)) for work in works()])
    assert found is not None
    for name in ("step_s", "prefill_token_s", "prefill_pair_s", "decode_s", "decode_pair_s"):
        assert getattr(found.model, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)
    assert found.worst_residual < 1e-6


def test_a_fit_says_how_far_it_is_off() -> None:
    samples = [Sample(work, TRUE.time(work) * (1.1 if i % 2 else 0.9)) for i, work in enumerate(works())]
    found = fit(samples)
    assert found is not None
    assert 0.05 < found.mean_residual < 0.15
    assert found.mean_residual <= found.worst_residual < 0.3


def test_no_cost_is_negative() -> None:
    """Times that fall with the length would need one: the term is left out instead."""
    samples = [Sample(Work.of_prefill(0, length, 512), 1 / length) for length in (100, 200, 300, 400)]
    found = fit(samples)
    assert found is not None
    assert min(astuple(found.model)) >= 0


def test_what_was_not_measured_costs_nothing() -> None:
    found = fit([Sample(Work.of_prefill(0, n, 512), 0.001 * n) for n in (10, 100, 500)])
    assert found is not None
    assert found.model.decode_s == 0


def test_nothing_measured_is_no_model() -> None:
    assert fit([]) is None
