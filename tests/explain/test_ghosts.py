"""Ghosts are bounded, come back, and know how many pages were missing."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.cache.hashing import BlockDigest
from anaphora.config import KVLayout
from anaphora.explain.ghosts import Eviction, Ghosts, Requester
from anaphora.explain.watch import AdmissionWatch, Admitted, Note
from anaphora.ids import RequestId
from anaphora.request import SamplingParams
from anaphora.scheduler.events import SchedulerListener
from tests.scheduler.story import SchedulerStory

WHO = Requester(RequestId("a"), None)


def digest(name: str) -> BlockDigest:
    return BlockDigest(name.encode())


def evict(ghosts: Ghosts, *names: str, time: float = 1.0) -> None:
    ghosts.add([digest(name) for name in names], time=time, cause="evicted", requester=WHO, num_pages=2)


def known(ghosts: Ghosts, name: str) -> Eviction:
    found = ghosts.get(digest(name))
    assert found is not None, f"{name} is not known"
    return found


def test_what_was_evicted_is_known_with_its_time_and_for_whom() -> None:
    ghosts = Ghosts(4)
    evict(ghosts, "x", "y", time=7.0)
    expected = Eviction(number=0, time=7.0, cause="evicted", requester=WHO, num_pages=2)
    assert known(ghosts, "x") == known(ghosts, "y") == expected
    assert ghosts.get(digest("z")) is None
    assert (len(ghosts), ghosts.num_evictions) == (2, 1)


def test_beyond_the_limit_the_oldest_are_forgotten_and_counted() -> None:
    ghosts = Ghosts(3)
    for number in range(5):
        evict(ghosts, str(number), time=float(number))
    assert [ghosts.get(digest(str(number))) is None for number in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert (len(ghosts), ghosts.num_forgotten, ghosts.forgotten_until) == (3, 2, 1.0)


def test_a_memory_without_room_forgets_everything_at_once_and_says_so() -> None:
    ghosts = Ghosts(0)
    evict(ghosts, "x", "y")
    assert (len(ghosts), ghosts.num_forgotten) == (0, 2)


def test_what_comes_back_is_no_ghost_and_was_not_forgotten() -> None:
    ghosts = Ghosts(3)
    evict(ghosts, "x", "y")
    ghosts.discard([digest("x"), digest("never there")])
    assert (ghosts.get(digest("x")), len(ghosts), ghosts.num_forgotten) == (None, 1, 0)


def test_a_block_evicted_again_is_the_youngest() -> None:
    ghosts = Ghosts(2)
    evict(ghosts, "x")
    evict(ghosts, "y")
    evict(ghosts, "x", time=3.0)
    evict(ghosts, "z")
    assert ghosts.get(digest("y")) is None
    assert known(ghosts, "x").time == 3.0


def test_a_page_without_digests_leaves_no_ghost() -> None:
    ghosts = Ghosts(2)
    evict(ghosts)
    assert (len(ghosts), ghosts.num_evictions) == (0, 0)


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 30), max_size=3, unique=True)), max_size=700),
    st.integers(1, 40),
)
def test_the_pages_that_were_missing_are_counted_as_by_hand(
    acts: list[tuple[bool, list[int]]], limit: int
) -> None:
    """Those evicted with it or later of which something is still gone."""
    ghosts = Ghosts(limit)
    naive: list[set[int]] = []  # what is still gone of each eviction
    order: list[int] = []
    for is_eviction, names in acts:
        for gone in naive:
            gone.difference_update(names)
        order = [name for name in order if name not in names]
        if is_eviction:
            evict(ghosts, *map(str, names))
            if names:
                naive.append(set(names))
            order += names
            for name in order[:-limit]:
                for gone in naive:
                    gone.discard(name)
            order = order[-limit:]
        else:
            ghosts.discard(digest(str(name)) for name in names)
    for name in order:
        eviction = known(ghosts, str(name))
        assert ghosts.num_pages_short(eviction) == sum(bool(gone) for gone in naive[eviction.number :])


# Against larger pools.


class Pool:
    """A cache of so many pages of two tokens, whose watch keeps what it notes."""

    def __init__(self, num_pages: int) -> None:
        self.notes: list[Note] = []
        self.ghosts = Ghosts(1000)
        self.watch = AdmissionWatch(
            self.ghosts,
            self.notes.append,
            block_size=2,
            exact_reuse=False,
            is_caching=True,
            find_block=lambda digest: self.story.manager.pool.index.get(digest),  # noqa: PLW0108 - not there yet
            find_owner=lambda digest: self.story.manager.pending.owner(digest),  # noqa: PLW0108 - as above
        )
        listener: SchedulerListener = self.watch
        self.story = SchedulerStory(
            KVLayout(2, 2, num_pages + 1),
            listener=listener,
            cache_listener=self.watch,
            max_model_len=2 * num_pages,
        )
        self.count = 0

    def ask(self, prompt: list[int]) -> Admitted:
        """Run a prompt to its end, and return the note of its admission."""
        self.count += 1
        self.story.add(str(self.count), prompt, SamplingParams(max_tokens=0))
        self.story.run()
        return next(note for note in reversed(self.notes) if isinstance(note, Admitted))


STEMS = st.builds(
    lambda stem, length: [stem + 1] * (2 * length) + [stem + 100], st.integers(0, 5), st.integers(1, 4)
)


@settings(max_examples=60)
@given(st.lists(STEMS, min_size=3, max_size=14), st.integers(5, 8))
def test_with_the_pages_that_were_missing_the_blocks_would_have_been_found_and_not_with_one_less(
    prompts: list[list[int]], num_pages: int
) -> None:
    """Replayed from the start in larger pools."""
    pool = Pool(num_pages)
    for number, prompt in enumerate(prompts):
        found = pool.ask(prompt)
        if found.num_pages_short is None:
            continue
        num_known = found.cached_tokens // 2 + sum(run.num_blocks for run in found.runs)
        for more, is_enough in ((found.num_pages_short, True), (found.num_pages_short - 1, False)):
            larger = Pool(num_pages + more)
            for earlier in prompts[:number]:
                larger.ask(earlier)
            assert (larger.ask(prompt).cached_tokens // 2 >= num_known) == is_enough
