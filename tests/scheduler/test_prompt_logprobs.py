"""The log probabilities of a prompt: every token is computed, and told of once, whatever the chunks."""

import pytest

from anaphora.config import KVLayout
from anaphora.request import Request, SamplingParams
from anaphora.scheduler.plan import PromptLogprobSpec, StepPlan
from anaphora.scheduler.progress import MAX_PROMPT_LOGPROB_ROWS
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory

BLOCK_16 = KVLayout(16, 16, 11)


def scored(num_top: int = 1, max_tokens: int = 1) -> SamplingParams:
    """Parameters that ask for the log probabilities of the prompt."""
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, prompt_logprobs=num_top)


def add(story: SchedulerStory, name: str, tokens: list[int], max_tokens: int = 1) -> Request:
    """Queue a request as the engine does."""
    return story.add(name, tokens, scored(max_tokens=max_tokens), skip_reading_cache=True)


def asked(plan: StepPlan) -> list[PromptLogprobSpec | None]:
    """What each chunk asks for."""
    return [chunk.prompt_logprobs for chunk in plan.chunks]


def assert_scored(story: SchedulerStory, name: str) -> None:
    """Every token of the prompt but the first has what it has alone."""
    request = story.requests[name]
    prompt = request.token_ids[: request.num_prompt_tokens]
    assert tuple(story.prompt_logprobs[name]) == story.runner.prompt_logprobs_alone(prompt, 1)


def test_the_last_row_of_a_chunk_predicts_the_first_token_of_the_next() -> None:
    """20 tokens by chunks of 8, 8 and 4; the last row predicts the output."""
    story = SchedulerStory(BLOCK_16, budget=8)
    add(story, "A", numbers(0, 20), max_tokens=3)
    assert asked(story.step()) == [PromptLogprobSpec(1, 0, numbers(1, 8))]
    assert asked(story.step()) == [PromptLogprobSpec(1, 0, numbers(9, 8))]
    assert asked(story.step()) == [PromptLogprobSpec(1, 0, numbers(17, 3))]
    assert asked(story.step()) == [None]
    assert_scored(story, "A")


def test_a_prompt_of_one_token_has_nothing_to_ask_for() -> None:
    """Nothing predicts the first token."""
    story = SchedulerStory(BLOCK_16)
    add(story, "A", [7], max_tokens=2)
    assert [asked(story.step()), asked(story.step())] == [[None], [None]]
    assert not story.scheduler.has_work


def test_case_33_such_a_request_reads_nothing_and_leaves_the_index_as_it_was() -> None:
    """On a warm cache: 11 pages, 55 tokens; its pages go first when freed, deepest first."""
    story = SchedulerStory(BLOCK_16)
    story.add("A", numbers(0, 55), SamplingParams(max_tokens=1, temperature=0.0))
    story.run()
    request = add(story, "B", numbers(0, 55))
    assert story.chunks(story.step()) == [("B", 0, 55)]
    assert (request.num_cached_tokens, request.num_cache_write_tokens) == (0, 0)
    assert list(story.manager.pool.free_order()) == [7, 6, 5, 4, 8, 9, 10, 3, 2, 1]
    assert_scored(story, "B")


def test_on_a_cold_cache_such_a_request_publishes_its_blocks_for_others() -> None:
    """The next prompt finds them."""
    story = SchedulerStory(BLOCK_16)
    assert add(story, "A", numbers(0, 55)).num_cache_write_tokens == 0
    story.run()
    assert story.requests["A"].num_cache_write_tokens == 48
    after = story.add("B", numbers(0, 55), SamplingParams(max_tokens=1, temperature=0.0))
    story.run()
    assert after.num_cached_tokens == 48


def test_such_a_request_waits_for_nobody_else_to_compute_its_blocks() -> None:
    """It would have to compute them all the same."""
    story = SchedulerStory(BLOCK_16)
    story.add("A", numbers(0, 55), SamplingParams(max_tokens=1, temperature=0.0))
    add(story, "B", numbers(0, 55))
    assert story.chunks(story.step()) == [("A", 0, 55), ("B", 0, 55)]
    assert_scored(story, "B")


@pytest.mark.parametrize("steps_before", [1, 2, 3, 4])
def test_a_resumed_prefill_does_not_repeat_what_is_known(steps_before: int) -> None:
    """All running requests are preempted in the midst of 30 tokens by chunks of 8."""
    story = SchedulerStory(BLOCK_16, budget=8)
    add(story, "A", numbers(0, 30), max_tokens=4)
    for _ in range(steps_before):
        story.step()
    assert story.scheduler.reset_prefix_cache(reset_running_requests=True)
    plans = []
    while story.scheduler.has_work:
        plans.append(story.step())
    known = min(8 * steps_before, 29)
    told = [token for plan in plans for spec in asked(plan) if spec for token in spec.token_ids]
    assert told == numbers(known + 1, 29 - known)
    assert_scored(story, "A")


def test_a_chunk_that_begins_earlier_than_before_asks_for_the_rows_that_are_missing() -> None:
    """A neighbour takes one token more of the budget the second time, so that chunks of A end elsewhere."""
    story = SchedulerStory(BLOCK_16, budget=9)
    story.add("B", [7], SamplingParams(max_tokens=9, temperature=0.0))
    add(story, "A", numbers(0, 20))
    assert asked(story.step()) == [None, PromptLogprobSpec(1, 0, numbers(1, 8))]
    assert story.scheduler.reset_prefix_cache(reset_running_requests=True)
    plans = [story.step() for _ in range(2)]
    assert [story.chunks(plan)[1] for plan in plans] == [("A", 0, 7), ("A", 7, 8)]
    assert [asked(plan)[1] for plan in plans] == [None, PromptLogprobSpec(1, 1, numbers(9, 7))]
    story.run()
    assert_scored(story, "A")


def test_the_rows_of_a_step_are_bounded_however_many_tokens_it_may_have() -> None:
    """Their logits are as large as the vocabulary; a neighbour that asks for none has the rest of the budget."""
    story = SchedulerStory(KVLayout(16, 16, 200, 2), budget=1000)
    add(story, "A", numbers(0, 300))
    add(story, "B", numbers(1000, 300))
    story.add("C", numbers(2000, 300), SamplingParams(max_tokens=1, temperature=0.0))
    rows = MAX_PROMPT_LOGPROB_ROWS
    assert story.chunks(story.step()) == [("A", 0, rows), ("C", 0, 300)]
    assert story.chunks(story.step()) == [("A", rows, 300 - rows), ("B", 0, 2 * rows - 300)]
    story.run()
    assert_scored(story, "A")
    assert_scored(story, "B")


def test_preemption_in_the_midst_of_everything_changes_nothing() -> None:
    """Eight pages for two requests that need six each."""
    story = SchedulerStory(KVLayout(4, 4, 9), budget=7, reserve_full=False, max_num_seqs=3)
    for name, start in (("A", 0), ("B", 100)):
        add(story, name, numbers(start, 12), max_tokens=12)
    story.run()
    assert sum(request.num_preemptions for request in story.requests.values()) > 0
    assert_scored(story, "A")
    assert_scored(story, "B")


def test_reading_the_cache_for_such_a_request_is_our_mistake() -> None:
    """The cached tokens would have no log probabilities."""
    story = SchedulerStory(BLOCK_16)
    with pytest.raises(AssertionError, match="that it may find in the cache"):
        story.add("A", numbers(0, 20), scored())
