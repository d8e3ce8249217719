"""A scheduler beside pinned pages: who pins them, when they lapse, and that no request of full length is stopped."""

import pytest

from anaphora.config import KVLayout
from anaphora.errors import NotEnoughMemoryError
from anaphora.ids import RequestId
from anaphora.request import Retention, SamplingParams
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory

LAYOUT = KVLayout(4, 4, 9)  # eight usable pages


def story_with_pins(until: float) -> SchedulerStory:
    """Return a scheduler whose pool has all three pinnable pages pinned."""
    story = SchedulerStory(LAYOUT, max_model_len=20, max_pinned_pages=3)
    story.add("A", list(range(12)), SamplingParams(max_tokens=1, temperature=0.0))
    chain = story.manager.table(story.requests["A"].request_id).chain
    story.run()
    assert story.manager.pin(chain, 12, until) == 12
    return story


def test_a_request_of_full_length_runs_beside_all_pins() -> None:
    """Three pages are pinned, and 20 tokens need the five others."""
    story = story_with_pins(until=1e9)
    request = story.add("B", list(range(100, 119)), SamplingParams(max_tokens=1, temperature=0.0))
    story.run()
    assert request.is_finished
    assert story.manager.pool.num_pinned_pages == 3


def test_a_pool_that_could_be_pinned_too_full_for_one_request_is_refused_at_start() -> None:
    with pytest.raises(NotEnoughMemoryError, match=r"needs 6 pages.*pool has 5.*lower --max-model-len to 20"):
        SchedulerStory(LAYOUT, max_model_len=21, max_pinned_pages=3)


def test_pins_lapse_when_a_step_is_planned() -> None:
    """Time stands still while nobody plans, and that does no harm."""
    story = story_with_pins(until=3.0)
    story.clock.advance(1.0)
    assert story.manager.pool.num_pinned_pages == 3
    story.clock.advance(10.0)
    story.step()
    assert story.manager.pool.num_pinned_pages == 0


# Retention that a request asks for.

ONE = SamplingParams(max_tokens=1, temperature=0.0)
WARM_UP = SamplingParams(max_tokens=0)


def pinned_after(story: SchedulerStory, *times: float) -> list[int]:
    """Return how many pages are pinned at each of these times."""
    pool = story.manager.pool
    counts = []
    for time in times:
        pool.lapse(time)
        story.manager.check_invariants()
        counts.append(pool.num_pinned_pages)
    return counts


@pytest.mark.parametrize("params", [ONE, WARM_UP])
def test_a_marked_beginning_is_pinned_for_its_time_from_the_step_that_computes_the_prompt(
    params: SamplingParams,
) -> None:
    """Three chunks: nothing is pinned before the third, at second 3. Eleven tokens are two full blocks."""
    story = SchedulerStory(LAYOUT, budget=6, max_model_len=20, max_pinned_pages=3)
    request = story.add("A", numbers(0, 17), params, retention=(Retention(11, 300.0),))
    for expected in (0, 0, 2):
        assert request.num_pinned_tokens is None
        story.step()
        assert story.manager.pool.num_pinned_pages == expected
    assert (request.is_finished, request.num_pinned_tokens) == (True, 8)
    assert story.manager.pool.usage() == (0, 4, 4)
    assert pinned_after(story, 302.9, 303.0) == [2, 0]


def test_each_of_several_beginnings_is_pinned_for_its_own_time() -> None:
    story = SchedulerStory(LAYOUT, max_model_len=20, max_pinned_pages=3)
    request = story.add("A", numbers(0, 17), ONE, retention=(Retention(12, 300.0), Retention(4, 3600.0)))
    story.run()
    assert request.num_pinned_tokens == 12
    assert pinned_after(story, 300.9, 301.0, 3600.9, 3601.0) == [3, 1, 1, 0]


def test_the_same_beginning_marked_again_is_kept_longer() -> None:
    """B comes at second 100 and computes its end only."""
    story = SchedulerStory(LAYOUT, max_model_len=20, max_pinned_pages=3)
    story.add("A", numbers(0, 9), ONE, retention=(Retention(8, 300.0),))
    story.run()
    story.clock.advance(99.0)
    story.add("B", numbers(0, 9), ONE, retention=(Retention(8, 300.0),))
    story.run()
    assert pinned_after(story, 400.9, 401.0) == [2, 0]


def test_a_pin_that_is_refused_is_no_failure_and_a_shorter_one_may_be_granted() -> None:
    """Two pages are allowed: the four of one mark are too many, the one of the other is not."""
    story = SchedulerStory(LAYOUT, max_model_len=24, max_pinned_pages=2)
    retention = (Retention(16, 300.0), Retention(4, 300.0))
    first = story.add("A", numbers(0, 17), ONE, retention=retention)
    second = story.add("B", numbers(100, 17), ONE, retention=retention[:1])
    story.run()
    assert (first.num_pinned_tokens, second.num_pinned_tokens) == (4, None)
    assert first.is_finished and second.is_finished
    assert story.manager.pool.num_pinned_pages == 1


def test_without_caching_nothing_is_pinned() -> None:
    story = SchedulerStory(LAYOUT, max_model_len=20, max_pinned_pages=3, caching=False)
    request = story.add("A", numbers(0, 9), ONE, retention=(Retention(8, 300.0),))
    story.run()
    assert request.num_pinned_tokens == 0


def test_an_aborted_request_pins_nothing() -> None:
    """Its first chunk stays cached, as always."""
    story = SchedulerStory(LAYOUT, budget=8, max_model_len=20, max_pinned_pages=3)
    story.add("A", numbers(0, 17), ONE, retention=(Retention(8, 300.0),))
    story.step()
    story.scheduler.abort(RequestId("A"), 1.0)
    story.scheduler.check_invariants()
    assert pinned_after(story, 1.0) == [0]
    assert story.manager.pool.usage().cached == 2


def test_of_several_sequences_the_one_that_computes_the_prompt_pins_it() -> None:
    """Three sequences with one prompt are one pin, and it is not set anew when another of them computes more."""
    story = SchedulerStory(LAYOUT, max_model_len=20, max_pinned_pages=3)
    story.add_n(3, "A", numbers(0, 9), SamplingParams(n=3, max_tokens=4), retention=(Retention(8, 300.0),))
    story.run()
    assert pinned_after(story, 300.9, 301.0) == [2, 0]


def test_a_request_goes_on_writing_in_the_page_whose_first_block_is_pinned() -> None:
    """Pages of two blocks: block 0 of page 2 is pinned, block 1 is written behind it, and nothing is copied."""
    story = SchedulerStory(KVLayout(4, 8, 9), max_model_len=40, max_pinned_pages=2)
    request = story.add("A", numbers(0, 13), SamplingParams(max_tokens=4), retention=(Retention(12, 300.0),))
    plans = [story.step() for _ in range(4)]
    assert [plan.copies for plan in plans] == [()] * 4
    assert (request.is_finished, request.num_pinned_tokens) == (True, 12)
    assert story.manager.pool.usage() == (0, 2, 6)
    follower = story.add("B", [*request.token_ids[:16], 1], ONE)
    story.run()
    assert follower.num_cached_tokens == 16


def test_a_pin_is_not_set_anew_when_a_preempted_request_computes_its_prompt_again() -> None:
    """B is preempted after its first outputs, and with exact reuse its second prefill ends with its prompt, too."""
    story = SchedulerStory(
        LAYOUT, max_model_len=20, max_pinned_pages=2, reserve_full=False, max_num_seqs=2, exact_reuse=True
    )
    long = SamplingParams(max_tokens=10, temperature=0.0, ignore_eos=True)
    story.add("A", numbers(0, 10), long)
    request = story.add("B", numbers(100, 10), long, retention=(Retention(8, 300.0),))
    story.run()
    assert request.num_preemptions == 1
    assert request.num_pinned_tokens == 8
    assert pinned_after(story, 300.9, 301.0) == [2, 0]
