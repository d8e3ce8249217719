"""A scheduler beside pinned pages: they lapse as it plans, and never stop a request of full length."""

import pytest

from anaphora.config import KVLayout
from anaphora.errors import NotEnoughMemoryError
from anaphora.request import SamplingParams
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
