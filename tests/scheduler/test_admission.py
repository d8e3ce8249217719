"""Who is admitted: coalescing, look-ahead with aging, priorities, and who gives way."""

import pytest

from anaphora.config import KVLayout
from anaphora.ids import RequestId
from anaphora.request import Request, SamplingParams
from anaphora.scheduler.events import SchedulerListener
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory

BLOCK_16 = KVLayout(16, 16, 200)


class WaitLog(SchedulerListener):
    """Writes down what came of waiting."""

    def __init__(self) -> None:
        self.coalesced: list[tuple[str, int]] = []
        self.timed_out: list[str] = []

    def request_coalesced(self, request: Request, num_tokens: int) -> None:
        """Note it."""
        self.coalesced.append((str(request.request_id), num_tokens))

    def coalescing_timed_out(self, request: Request) -> None:
        """Note it."""
        self.timed_out.append(str(request.request_id))


def greedy(max_tokens: int) -> SamplingParams:
    """Return greedy parameters."""
    return SamplingParams(max_tokens=max_tokens, temperature=0.0)


# Coalescing.


def test_identical_prompts_at_once_compute_one_prompt_and_at_most_a_block_each() -> None:
    """Sixteen prompts of 400 tokens, computed in chunks of 64 with room for others beside them."""
    log = WaitLog()
    story = SchedulerStory(BLOCK_16, budget=128, threshold=64, listener=log)
    requests = [story.add(f"R{i}", numbers(0, 400), greedy(1)) for i in range(16)]
    story.run()
    assert story.runner.num_computed_tokens == 400 + 15 * 16
    assert [request.num_cached_tokens for request in requests] == [0] + [384] * 15
    assert sorted(log.coalesced) == sorted((f"R{i}", 384) for i in range(1, 16))
    assert log.timed_out == []


def test_a_request_waits_only_for_what_it_shares() -> None:
    """B shares 64 of A's 320 tokens: it starts when these are there, long before A is done."""
    story = SchedulerStory(BLOCK_16, budget=80, threshold=64)
    story.add("A", numbers(0, 320), greedy(1))
    story.add("B", [*numbers(0, 64), *numbers(900, 8)], greedy(1))
    assert story.chunks(story.step()) == [("A", 0, 64)]
    assert story.scheduler.num_deferred == 1
    assert story.chunks(story.step()) == [("A", 64, 64), ("B", 64, 8)]


def test_those_behind_one_that_waits_are_not_held_up() -> None:
    """C has nothing to do with A."""
    story = SchedulerStory(BLOCK_16, budget=128)
    story.add("A", numbers(0, 100), greedy(1))
    story.add("B", numbers(0, 100), greedy(1))
    story.add("C", numbers(500, 20), greedy(1))
    assert story.chunks(story.step()) == [("A", 0, 100), ("C", 0, 20)]
    assert story.chunks(story.step()) == [("B", 96, 4)]


def test_a_request_wakes_at_once_when_the_other_is_aborted() -> None:
    """It then computes all that is missing itself."""
    story = SchedulerStory(BLOCK_16, budget=80, threshold=64)
    story.add("A", numbers(0, 200), greedy(1))
    story.add("B", numbers(0, 200), greedy(1))
    story.step()
    assert story.scheduler.num_deferred == 1
    story.scheduler.abort(RequestId("A"), 0.0)
    assert story.chunks(story.step()) == [("B", 64, 64)]


def test_a_wait_ends_at_its_deadline() -> None:
    """Steps last a second, and the deadline is 2.5: B computes for itself from the fourth step on."""
    log = WaitLog()
    story = SchedulerStory(BLOCK_16, budget=32, coalesce_ms=2_500, listener=log, threshold=16)
    story.add("A", numbers(0, 160), greedy(1))
    story.add("B", numbers(0, 160), greedy(1))
    plans = [story.chunks(story.step()) for _ in range(4)]
    assert [[name for name, _, _ in plan] for plan in plans] == [["A"], ["A"], ["A"], ["A", "B"]]
    assert log.timed_out == ["B"]
    story.run()


def test_a_deadline_of_zero_is_never_to_wait() -> None:
    """Both compute the same blocks; they are indexed once."""
    story = SchedulerStory(BLOCK_16, coalesce_ms=0)
    for name in "AB":
        story.add(name, numbers(0, 40), greedy(1))
    assert story.chunks(story.step()) == [("A", 0, 40), ("B", 0, 40)]
    story.scheduler.check_invariants()


def test_a_reader_that_skips_the_cache_waits_for_nobody() -> None:
    """It could not use what the other computes."""
    story = SchedulerStory(BLOCK_16)
    story.add("A", numbers(0, 40), greedy(1))
    story.add("B", numbers(0, 40), greedy(1), skip_reading_cache=True)
    assert story.chunks(story.step()) == [("A", 0, 40), ("B", 0, 40)]


def test_salts_do_not_wait_for_each_other() -> None:
    """The same tokens in another namespace."""
    story = SchedulerStory(BLOCK_16)
    story.add("A", numbers(0, 40), greedy(1), cache_salt="a")
    story.add("B", numbers(0, 40), greedy(1), cache_salt="b")
    assert story.chunks(story.step()) == [("A", 0, 40), ("B", 0, 40)]


# Look-ahead and aging.


def test_smaller_requests_pass_a_head_that_does_not_fit() -> None:
    """Ten pages, six held: the head wants eight; of those behind it, the smallest go first."""
    story = SchedulerStory(KVLayout(16, 16, 11))
    story.add("A", numbers(0, 90), greedy(30))
    story.step()
    story.add("head", numbers(1000, 128), greedy(1))
    story.add("large", numbers(2000, 48), greedy(1))
    story.add("small", numbers(3000, 16), greedy(1))
    assert [name for name, _, _ in story.chunks(story.step())] == ["A", "small", "large"]


def test_a_warm_request_passes_before_a_cold_one_of_the_same_length() -> None:
    """Its hits are held by A anyway, so it needs one page instead of three."""
    story = SchedulerStory(KVLayout(16, 16, 11), max_passes=1)
    story.add("A", numbers(0, 90), greedy(30))
    story.step()
    story.add("head", numbers(1000, 128), greedy(1))
    story.add("cold", numbers(2000, 48), greedy(9))
    story.add("warm", [*numbers(0, 32), *numbers(3000, 16)], greedy(9))
    assert [name for name, _, _ in story.chunks(story.step())] == ["A", "warm"]


def test_a_head_is_passed_over_a_bounded_number_of_times() -> None:
    """After three passes nobody goes before it, however small."""
    story = SchedulerStory(KVLayout(16, 16, 11), max_passes=3)
    story.add("A", numbers(0, 90), greedy(8))
    story.step()
    story.add("head", numbers(1000, 128), greedy(1))
    passed = []
    for turn in range(12):
        story.add(f"small{turn}", numbers(3000 + 100 * turn, 10), greedy(1))
        passed += [name for name, start, _ in story.chunks(story.step()) if start == 0]
    order = passed.index("head")
    assert order == 3
    story.run()
    assert len(story.outputs("small11")) == 1


@pytest.mark.parametrize("lookahead", [0, 1, 2])
def test_only_so_many_behind_the_head_are_tried(lookahead: int) -> None:
    """The one that fits stands second behind the head."""
    story = SchedulerStory(KVLayout(16, 16, 11), lookahead=lookahead)
    story.add("A", numbers(0, 90), greedy(8))
    story.step()
    for number, name in enumerate(["head", "second"]):
        story.add(name, numbers(1000 * number + 1000, 128), greedy(1))
    story.add("small", numbers(5000, 10), greedy(1))
    assert ("small" in [name for name, _, _ in story.chunks(story.step())]) is (lookahead == 2)


# Priorities and victims.


def test_priorities_decide_who_is_admitted() -> None:
    """Lower goes first, then the earlier."""
    story = SchedulerStory(BLOCK_16, policy="priority", max_num_seqs=1)
    for name, priority in (("low", 5), ("high", 0), ("also high", 0), ("middle", 2)):
        story.add(name, numbers(hash(name) % 1000, 5), greedy(1), priority=priority)
    served = [story.chunks(story.step())[0][0] for _ in range(4)]
    assert served == ["high", "also high", "middle", "low"]


def test_case_55_the_lowest_priority_is_preempted() -> None:
    """Both need a third page, of which there is one."""
    story = SchedulerStory(KVLayout(16, 16, 6), policy="priority", caching=False)
    low = story.add("low", numbers(0, 32), greedy(5), priority=5)
    high = story.add("high", numbers(500, 32), greedy(5), priority=0)
    story.run()
    assert (low.num_preemptions, high.num_preemptions) == (1, 0)


def test_who_loses_least_for_each_page_it_frees_gives_way() -> None:
    """A needs a fourth page. B would lose 1 of 33 tokens, C 14 of 46: the rest of both stays cached."""
    story = SchedulerStory(KVLayout(16, 16, 10))
    a = story.add("A", numbers(0, 48), greedy(9))
    b = story.add("B", numbers(900, 33), greedy(9))
    c = story.add("C", numbers(500, 46), greedy(9))
    story.step()
    story.step()
    assert (a.num_preemptions, b.num_preemptions, c.num_preemptions) == (0, 1, 0)


def test_the_oldest_is_never_the_victim_while_there_is_another() -> None:
    """So that somebody always gets to its end."""
    story = SchedulerStory(KVLayout(4, 4, 12), reserve_full=False, max_model_len=40)
    oldest = story.add("oldest", numbers(0, 15), greedy(20))
    for i in range(5):
        story.add(f"R{i}", numbers(100 * i + 100, 14), greedy(16))
    story.run()
    assert oldest.num_preemptions == 0
    assert sum(request.num_preemptions for request in story.requests.values()) > 0


def test_recomputed_tokens_are_counted_one_by_one() -> None:
    """However often a request is preempted, even while it recomputes: computed = needed + recomputed."""

    class Count(SchedulerListener):
        total = 0

        def tokens_recomputed(self, request: Request, num_tokens: int) -> None:
            """Add up."""
            Count.total += num_tokens

    story = SchedulerStory(
        KVLayout(4, 4, 12), reserve_full=False, max_model_len=40, listener=Count(), caching=False
    )
    for i in range(6):
        story.add(f"R{i}", numbers(100 * i, 14 + i), greedy(16))
    story.run()
    needed = sum(len(request.token_ids) - 1 for request in story.requests.values())
    assert Count.total > 0
    assert story.runner.num_computed_tokens == needed + Count.total
