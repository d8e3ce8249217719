"""Requests with max_tokens 0: the prompt is computed and cached, and nothing is generated."""

import pytest

from anaphora.config import KVLayout
from anaphora.errors import ContextLengthError, InvalidRequestError
from anaphora.request import FinishReason, SamplingParams
from anaphora.scheduler.scheduler import Update
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory

LAYOUT = KVLayout(4, 4, 9)  # eight usable pages
WARM_UP = SamplingParams(max_tokens=0)


def test_it_ends_with_the_step_that_computes_its_last_prompt_token() -> None:
    """All four blocks are cached, the last one too, since the last token is computed here."""
    story = SchedulerStory(LAYOUT)
    request = story.add("A", numbers(0, 16), WARM_UP)
    plan = story.scheduler.plan(1.0)
    assert [(len(chunk.token_ids), chunk.samples) for chunk in plan.chunks] == [(16, ())]
    assert story.scheduler.commit(plan, story.runner.run(plan), 1.0) == [Update(request, None)]
    assert (request.finish_reason, request.num_output_tokens) == (FinishReason.LENGTH, 0)
    assert (request.num_cached_tokens, request.num_cache_write_tokens) == (0, 16)
    assert story.manager.pool.usage() == (0, 4, 4)
    assert not story.scheduler.has_work


def test_a_prompt_in_chunks_ends_with_the_last_of_them() -> None:
    """Six tokens a step; whoever continues the prompt finds all of it."""
    story = SchedulerStory(LAYOUT, budget=6)
    story.add("A", numbers(0, 16), WARM_UP)
    assert [len(story.step().chunks[0].token_ids) for _ in range(3)] == [6, 6, 4]
    assert not story.scheduler.has_work
    request = story.add("B", numbers(0, 17), SamplingParams(max_tokens=1, temperature=0.0))
    story.run()
    assert request.num_cached_tokens == 16


def test_a_cached_prompt_computes_its_last_block_again_and_writes_nothing() -> None:
    story = SchedulerStory(LAYOUT)
    story.add("A", numbers(0, 16), WARM_UP)
    story.run()
    request = story.add("B", numbers(0, 16), WARM_UP)
    story.run()
    assert (request.num_cached_tokens, request.num_cache_write_tokens) == (12, 0)
    assert story.runner.num_computed_tokens == 16 + 4


def test_one_that_is_preempted_begins_again_and_ends() -> None:
    """Both prompts are in chunks and need all the pages; the younger gives way."""
    story = SchedulerStory(LAYOUT, budget=8, max_num_seqs=2, threshold=4, reserve_full=False)
    first, second = (story.add(name, numbers(start, 20), WARM_UP) for name, start in (("A", 0), ("B", 100)))
    story.run()
    assert (first.num_preemptions, second.num_preemptions) == (0, 1)
    assert (first.num_cache_write_tokens, second.num_cache_write_tokens) == (20, 20)
    assert second.finish_reason is FinishReason.LENGTH


def test_who_waits_for_its_blocks_gets_them() -> None:
    """B comes while A computes, and computes its own last token only."""
    story = SchedulerStory(LAYOUT)
    story.add("A", numbers(0, 16), WARM_UP)
    request = story.add("B", numbers(0, 17), SamplingParams(max_tokens=1, temperature=0.0))
    story.run()
    assert request.num_cached_tokens == 16
    assert story.runner.num_computed_tokens == 16 + 1


def test_a_prompt_may_fill_the_whole_context() -> None:
    """32 tokens are eight pages: no output needs a place."""
    story = SchedulerStory(LAYOUT)
    request = story.add("A", numbers(0, 32), WARM_UP)
    story.run()
    assert request.num_cache_write_tokens == 32
    with pytest.raises(
        ContextLengthError, match="the prompt has 33 tokens, but the context is 32; shorten the prompt"
    ):
        story.add("B", numbers(0, 33), WARM_UP)


def test_without_a_limit_there_must_be_room_for_one_output() -> None:
    story = SchedulerStory(LAYOUT)
    with pytest.raises(ContextLengthError, match="at least one output token"):
        story.add("A", numbers(0, 32), SamplingParams(max_tokens=None))


@pytest.mark.parametrize("field", ["n", "min_tokens"])
def test_it_can_neither_have_several_answers_nor_a_least_length(field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(max_tokens=0).with_changes(**{field: 2})
    assert caught.value.param == field
