"""What the watch notes of each admission, through the real scheduler, cache and a fake runner."""

import random
from typing import Any

import pytest

from anaphora.config import KVLayout
from anaphora.explain.ghosts import Ghosts
from anaphora.explain.watch import AdmissionWatch, Admitted, Ended, Note
from anaphora.ids import RequestId
from anaphora.request import Request, Retention, SamplingParams
from tests.scheduler.story import SchedulerStory

NOTHING = SamplingParams(max_tokens=0)
ME, YOU = b"me", b"you"


def some(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, temperature=0.0)


class Watched:
    """A story whose watch keeps its notes."""

    def __init__(
        self,
        layout: KVLayout,
        *,
        caching: bool = True,
        exact_reuse: bool = False,
        num_ghosts: int = 100,
        **options: Any,
    ) -> None:
        self.notes: list[Note] = []
        self.ghosts = Ghosts(num_ghosts)
        self.watch = AdmissionWatch(
            self.ghosts,
            self.notes.append,
            block_size=layout.block_size,
            exact_reuse=exact_reuse,
            is_caching=caching,
            find_block=lambda digest: self.story.manager.pool.index.get(digest),  # noqa: PLW0108 - not there yet
            find_owner=lambda digest: self.story.manager.pending.owner(digest),  # noqa: PLW0108 - as above
        )
        self.story = SchedulerStory(
            layout,
            caching=caching,
            exact_reuse=exact_reuse,
            listener=self.watch,
            cache_listener=self.watch,
            **options,
        )

    def ask(self, name: str, tokens: list[int], params: SamplingParams = NOTHING, **options: Any) -> Admitted:
        """Run a request to its end and return the note of its admission."""
        self.story.add(name, tokens, params, **options)
        self.story.run()
        return self.note(name)

    def note(self, name: str) -> Admitted:
        """Return the one note of an admission."""
        (found,) = [note for note in self.notes if isinstance(note, Admitted) and note.request_id == name]
        return found

    def end(self, name: str) -> Ended:
        """Return the one note of an end."""
        (found,) = [note for note in self.notes if isinstance(note, Ended) and note.request_id == name]
        return found

    @property
    def leftovers(self) -> list[Any]:
        """Return what the watch keeps of requests."""
        watch = self.watch
        return [kept for kept in (watch._missed, watch._tenants, watch._admission_times) if kept]


def runs(note: Admitted) -> list[tuple[str, int]]:
    """Return the labels and how many blocks have each."""
    return [(run.first.label, run.num_blocks) for run in note.runs]


def test_a_cold_prompt_has_no_labels_and_a_warm_one_only_those_of_the_law() -> None:
    """Nine tokens in blocks of two: the ninth stands alone; of eight the last block may not be reused."""
    story = Watched(KVLayout(2, 2, 20))
    cold = story.ask("cold", [1] * 9, tenant_salt=ME, cache_salt="s")
    assert (runs(cold), cold.cached_tokens, cold.num_prompt_tokens) == ([], 0, 9)
    assert (cold.tenant_salt, cold.cache_salt, cold.time, cold.num_pages_short) == (ME, "s", 1.0, None)
    warm = story.ask("warm", [1] * 9, tenant_salt=ME, cache_salt="s")
    assert (runs(warm), warm.cached_tokens) == ([], 8)
    whole = story.ask("whole", [1] * 8, tenant_salt=ME, cache_salt="s")
    assert (runs(whole), whole.cached_tokens) == ([("law", 1)], 6)


def test_a_prefill_that_would_be_too_short_gives_a_block_back() -> None:
    story = Watched(KVLayout(2, 2, 20, 2))
    story.ask("a", [1] * 9)
    again = story.ask("b", [1] * 9)
    assert (runs(again), again.cached_tokens) == ([("law", 1)], 6)


def test_blocks_that_another_request_computes_are_in_flight_since_its_admission() -> None:
    """Nobody waits: the second is admitted while the first is in the middle of its prefill."""
    story = Watched(KVLayout(2, 2, 40), coalesce_ms=0, threshold=4)
    story.story.add("first", [1] * 12, some(2), tenant_salt=ME)
    story.story.step()
    story.story.add("second", [1] * 12, some(2), tenant_salt=ME)
    story.story.run()
    note = story.note("second")
    assert (note.cached_tokens, runs(note)) == (4, [("in_flight", 4)])
    owner = note.runs[0].first.owner
    assert owner is not None
    assert (owner.requester.request_id, owner.requester.tenant_salt, owner.since) == ("first", ME, 1.0)


@pytest.mark.parametrize("whose", [ME, YOU])
def test_evicted_blocks_name_who_took_their_room_and_how_many_pages(whose: bytes) -> None:
    """Six pages; the flood takes them all."""
    story = Watched(KVLayout(2, 2, 7))
    story.ask("mine", [1] * 5, tenant_salt=ME)
    story.ask("flood", [9] * 11, tenant_salt=whose)
    again = story.ask("again", [1] * 5, tenant_salt=ME)
    assert runs(again) == [("evicted", 2)]
    eviction = again.runs[0].first.eviction
    assert eviction is not None and eviction.requester is not None
    assert (eviction.cause, eviction.time, eviction.num_pages) == ("evicted", 2.0, 6)
    assert eviction.requester == ("flood", whose)
    assert again.num_pages_short == 2


def test_what_was_pinned_and_then_evicted_has_expired() -> None:
    story = Watched(KVLayout(2, 2, 9), max_pinned_pages=2, max_model_len=12)
    story.ask("pinned", [1] * 5, retention=(Retention(4, 10.0),))
    story.ask("early", [9] * 11)
    assert story.ask("still there", [1] * 5).cached_tokens == 4
    story.story.clock.advance(20.0)
    story.ask("flood", [9, 8] * 6)
    story.ask("flood2", [7] * 11)
    again = story.ask("again", [1] * 5)
    assert runs(again) == [("expired", 2)]


def test_a_page_that_lost_its_digests_to_a_fuller_one_is_not_said_to_have_expired_later() -> None:
    """Its pin had lapsed; then another page took its digests over, and it was taken without an eviction."""
    story = Watched(KVLayout(2, 4, 9), max_pinned_pages=1, max_model_len=24)
    story.ask("half", [1, 2, 3], retention=(Retention(2, 1.0),))
    story.story.clock.advance(5.0)
    story.ask("full", [1, 2, 3, 4, 5])
    for number in range(6):
        story.ask(f"flood{number}", [10 + number] * 23)
    assert {eviction.cause for eviction in story.ghosts._evictions.values()} == {"evicted"}


def test_blocks_behind_a_gap_are_stranded() -> None:
    """Of a chain whose first block is evicted alone: the rest is held by one who runs."""
    story = Watched(KVLayout(2, 2, 12), eviction="lfu")
    story.ask("a", [1] * 7)
    pool = story.story.manager.pool
    first = story.story.manager.pool.free_order()
    # The first block of the chain is released last, so it is the last to be evicted: let it go by hand.
    chain_pages = [page for page in first if page in {1, 2, 3}]
    assert chain_pages
    head = next(page for page in pool._pages if page.blocks and page.blocks[0].parent not in _digests(pool))
    pool._cached.remove(head)
    pool._evict(head)
    pool._empty.prepend_all([head])
    again = story.ask("again", [1] * 7)
    assert runs(again) == [("evicted", 1), ("stranded", 2)]


def _digests(pool: Any) -> set[bytes]:
    return {block.digest for page in pool._pages for block in page.blocks}


def test_blocks_written_by_decode_steps_are_forbidden_by_exact_reuse() -> None:
    story = Watched(KVLayout(2, 2, 40), exact_reuse=True)
    story.ask("a", [1] * 5, some(6))
    request = story.story.requests["a"]
    again = story.ask("b", [*request.token_ids[:10], 77, 78])
    assert again.cached_tokens == 4
    assert runs(again) == [("law:decode_written", 3)]


def test_part_of_a_page_that_cannot_be_copied_is_rounded_away() -> None:
    """A page of four blocks, of which two are shared."""
    story = Watched(KVLayout(2, 8, 20, can_copy_part=False))
    story.ask("a", [1] * 9)
    again = story.ask("b", [1, 1, 1, 1, 5, 5, 5, 5, 5])
    assert (again.cached_tokens, runs(again)) == (0, [("law:block_floor", 2)])


def test_a_request_that_reads_nothing_is_bypassed_and_says_why() -> None:
    story = Watched(KVLayout(2, 2, 20))
    story.ask("a", [1] * 5)
    scored = story.ask("b", [1] * 5, SamplingParams(max_tokens=1, prompt_logprobs=0), skip_reading_cache=True)
    assert (scored.bypassed_by, scored.cached_tokens, runs(scored)) == ("prompt_logprobs", 0, [])
    off = Watched(KVLayout(2, 2, 20), caching=False)
    assert off.ask("a", [1] * 5).bypassed_by == "--no-enable-prefix-caching"
    assert off.ask("b", [1] * 5).cached_tokens == 0


def test_a_reset_is_noted_and_leaves_no_ghosts() -> None:
    story = Watched(KVLayout(2, 2, 20))
    assert story.ask("a", [1] * 5).reset_time is None
    assert story.story.scheduler.reset_prefix_cache()
    again = story.ask("b", [1] * 5)
    assert (again.reset_time, runs(again), len(story.ghosts)) == (1.0, [], 0)


def test_a_preempted_request_is_noted_once_as_it_was_first_admitted() -> None:
    story = Watched(KVLayout(2, 2, 9), reserve_full=False, max_model_len=16)
    for name, token in (("a", 1), ("b", 2)):
        story.story.add(name, [token] * 5, some(9))
    story.story.run()
    assert sum(request.num_preemptions for request in story.story.requests.values()) > 0
    for name in ("a", "b"):
        assert (story.note(name).cached_tokens, runs(story.note(name))) == (0, [])
        assert story.end(name).num_computed_tokens == 13
    assert not story.leftovers


def test_several_answers_to_one_prompt_are_noted_once() -> None:
    story = Watched(KVLayout(2, 2, 40))
    story.story.add_n(3, "a", [1] * 5, some(4))
    story.story.run()
    assert [note.request_id for note in story.notes if isinstance(note, Admitted)] == ["a"]
    assert {note.request_id for note in story.notes if isinstance(note, Ended)} == {"a", "a1", "a2"}
    assert not story.leftovers


def test_who_leaves_before_the_admission_leaves_nothing_behind() -> None:
    """It is never noted as admitted."""
    story = Watched(KVLayout(2, 2, 4), max_model_len=6)
    story.story.add("a", [1] * 5, some(1))
    story.story.add("b", [2] * 5, some(1))
    story.story.step()
    story.story.scheduler.abort(RequestId("b"), story.story.clock.now())
    story.story.run()
    assert not [note for note in story.notes if isinstance(note, Admitted) and note.request_id == "b"]
    assert not story.leftovers


def test_forgotten_ghosts_are_told_with_every_note() -> None:
    story = Watched(KVLayout(2, 2, 7), num_ghosts=1)
    story.ask("a", [1] * 5)
    story.ask("flood", [9] * 11)
    assert story.ask("b", [1] * 5).num_forgotten_ghosts >= 1


@pytest.mark.parametrize("seed", range(4))
def test_a_crowd_of_which_many_leave_at_random_leaves_nothing_behind(seed: int) -> None:
    """With forks, preemptions, waits and resets; each is noted at most once, and each admitted one ends."""
    rng = random.Random(seed)
    story = Watched(KVLayout(2, 4, 14, 2), reserve_full=False, budget=16, max_model_len=40, coalesce_ms=3000)
    live: list[Request] = []
    for number in range(150):
        tokens = [rng.randint(0, 1)] * rng.randint(1, 16) + [rng.randint(0, 3) for _ in range(3)]
        live += story.story.add_n(
            rng.choice([1, 1, 2, 3]),
            f"r{number}.",
            tokens,
            some(rng.randint(1, 9)),
            tenant_salt=rng.choice([ME, YOU]),
        )
        for _ in range(rng.randint(0, 4)):
            story.story.step()
        while live and rng.random() < 0.5:
            gone = live.pop(rng.randrange(len(live)))
            story.story.scheduler.abort(gone.request_id, story.story.clock.now())
        if rng.random() < 0.05:
            story.story.scheduler.reset_prefix_cache(reset_running_requests=rng.random() < 0.5)
    story.story.run()
    assert not story.leftovers
    admitted = [note.request_id for note in story.notes if isinstance(note, Admitted)]
    assert len(admitted) == len(set(admitted))
    assert set(admitted) <= {note.request_id for note in story.notes if isinstance(note, Ended)}
