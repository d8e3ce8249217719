"""Several sequences from one prompt: one prefill, shared pages, a copy at the first write."""

import pytest

from anaphora.config import KVLayout
from anaphora.ids import RequestId
from anaphora.request import FinishReason, RequestStatus, SamplingParams
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory

BLOCK_16 = KVLayout(16, 16, 21)
# Each fork its own text: the runner's tokens depend on the K/V alone, so the first one is scripted.
SCRIPT = {"A": [11], "A1": [12], "A2": [13], "A3": [14]}


def params(max_tokens: int = 3) -> SamplingParams:
    """Return greedy parameters."""
    return SamplingParams(max_tokens=max_tokens, temperature=0.0)


def references(story: SchedulerStory, *names: str) -> dict[int, int]:
    """Return how many of these requests hold each page."""
    held: dict[int, int] = {}
    for name in names:
        for page in story.manager.table(RequestId(name)).pages:
            held[int(page.page_id)] = page.ref_count
    return held


def test_case_59_a_prompt_of_50_tokens_with_n_4_is_computed_once() -> None:
    """Four pages with four holders each; after the first decode step the tails are 4, 5, 6 and 7."""
    story = SchedulerStory(BLOCK_16, script=SCRIPT)
    requests = story.add_n(4, "A", numbers(0, 50), params())
    plan = story.step()
    assert story.chunks(plan) == [("A", 0, 50)]
    assert [spec.request_id for spec in plan.chunks[0].samples] == ["A", "A1", "A2", "A3"]
    assert references(story, "A", "A1", "A2", "A3") == {1: 4, 2: 4, 3: 4, 4: 4}
    plan = story.step()
    assert story.chunks(plan) == [("A", 50, 1), ("A1", 50, 1), ("A2", 50, 1), ("A3", 50, 1)]
    assert [(copy.source, copy.target, copy.num_tokens) for copy in plan.copies] == [
        (4, 5, 2),
        (4, 6, 2),
        (4, 7, 2),
    ]
    assert references(story, "A", "A1", "A2", "A3") == {1: 4, 2: 4, 3: 4, 4: 1, 5: 1, 6: 1, 7: 1}
    assert story.manager.pool.usage().used == 7
    assert [request.num_cached_tokens for request in requests] == [0, 0, 0, 0]
    story.run()
    assert story.runner.num_computed_tokens == 50 + 4 * 2
    assert story.manager.pool.usage().used == 0


def test_every_fork_gives_the_text_it_would_give_alone() -> None:
    """The copies carry what was written, and nobody writes into another's page."""
    story = SchedulerStory(KVLayout(4, 8, 40), script=SCRIPT)
    story.add_n(4, "A", numbers(0, 10), params(9))
    story.run()
    for name, (first,) in {"A": (11,), "A1": (12,), "A2": (13,), "A3": (14,)}.items():
        alone = SchedulerStory(KVLayout(4, 8, 40), script={"A": [first]})
        alone.add("A", numbers(0, 10), params(9))
        alone.run()
        assert story.outputs(name) == alone.outputs("A"), name


def test_a_prompt_that_fills_its_pages_is_shared_without_a_copy() -> None:
    """32 tokens are two whole pages; the first output opens a page for each."""
    story = SchedulerStory(BLOCK_16, script=SCRIPT)
    story.add_n(2, "A", numbers(0, 32), params())
    story.step()
    assert story.step().copies == ()
    assert references(story, "A", "A1") == {1: 2, 2: 2, 3: 1, 4: 1}


def test_a_fork_that_ends_with_its_first_token_leaves_the_others() -> None:
    """max_tokens of 1: all end in the step of the prefill."""
    story = SchedulerStory(BLOCK_16, script=SCRIPT)
    requests = story.add_n(3, "A", numbers(0, 20), params(1))
    story.step()
    assert [request.finish_reason for request in requests] == [FinishReason.LENGTH] * 3
    assert [story.outputs(name) for name in ("A", "A1", "A2")] == [[11], [12], [13]]
    assert story.manager.pool.usage().used == 0


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_forks_go_on_when_their_parent_is_aborted(steps_before: int) -> None:
    """Before anything ran, in the middle of the prompt, and after the fork."""
    story = SchedulerStory(BLOCK_16, budget=24, script={"A1": [12], "A2": [13]}, max_num_seqs=4)
    story.add_n(3, "A", numbers(0, 40), params(5))
    for _ in range(steps_before):
        story.step()
    assert story.scheduler.abort(RequestId("A"), 0.0)
    story.scheduler.check_invariants()
    story.run()
    assert [len(story.outputs(name)) for name in ("A1", "A2")] == [5, 5]
    assert story.requests["A1"].finish_reason is FinishReason.LENGTH
    assert story.manager.pool.usage().used == 0


def test_a_fork_aborted_before_its_parents_prompt_is_computed_is_simply_gone() -> None:
    """And a second abort finds nothing."""
    story = SchedulerStory(BLOCK_16, budget=24, max_num_seqs=4)
    story.add_n(3, "A", numbers(0, 40), params(5))
    assert story.scheduler.num_deferred == 2
    assert story.scheduler.abort(RequestId("A1"), 0.0)
    assert not story.scheduler.abort(RequestId("A1"), 0.0)
    assert story.requests["A1"].status is RequestStatus.FINISHED
    story.run()
    assert [len(story.outputs(name)) for name in ("A", "A1", "A2")] == [5, 0, 5]


def test_forks_without_a_seat_wait_and_hit_what_their_parent_left() -> None:
    """Two may run at once; the third sequence comes later and computes two tokens of its own."""
    story = SchedulerStory(KVLayout(16, 16, 21, min_prefill_tokens=2), max_num_seqs=2)
    story.add_n(3, "A", numbers(0, 50), params(2))
    assert story.chunks(story.step()) == [("A", 0, 50)]
    story.step()
    assert story.chunks(story.step()) == [("A2", 48, 2)]
    story.run()
    assert story.manager.pool.usage().used == 0


def test_a_copy_that_finds_no_page_preempts() -> None:
    """Three usable pages: both sequences share two, and the third page is the only copy there can be."""
    story = SchedulerStory(KVLayout(4, 4, 4), script={"A": [11], "A1": [12]})
    story.add_n(2, "A", numbers(0, 6), params(4))
    story.run()
    assert [len(story.outputs(name)) for name in ("A", "A1")] == [4, 4]
    assert story.requests["A1"].num_preemptions > 0
    assert story.manager.pool.usage().used == 0
