"""What a prompt would find if it came now, asked without changing anything; and when time is told."""

import pytest

from anaphora.cache.chain import BlockChain
from anaphora.cache.events import CacheListener, CacheListeners
from anaphora.cache.page import Page
from anaphora.config import KVLayout
from anaphora.errors import InvalidRequestError
from anaphora.ids import RequestId
from anaphora.request import Retention, SamplingParams
from anaphora.scheduler.events import SchedulerListener, SchedulerListeners
from anaphora.scheduler.probe import Probe
from tests.hash_twins import ALGORITHMS
from tests.scheduler.story import SchedulerStory

NOTHING = SamplingParams(max_tokens=0)


def probe(
    story: SchedulerStory, tokens: list[int], salt: str | None = None, tenant: bytes | None = None
) -> Probe:
    return story.scheduler.probe(tokens, tenant, salt)


def test_a_probe_finds_what_the_next_request_finds_and_changes_nothing() -> None:
    story = SchedulerStory(KVLayout(2, 4, 12, 2))
    story.add("a", [1] * 7, NOTHING)
    story.run()
    before = story.manager.pool.free_order()
    found = probe(story, [1, 1, 1, 1, 1, 5, 5])
    assert found == probe(story, [1, 1, 1, 1, 1, 5, 5]) == Probe(4, 4, 2)
    assert story.manager.pool.free_order() == before
    story.add("b", [1, 1, 1, 1, 1, 5, 5], NOTHING)
    story.run()
    assert story.requests["b"].num_cached_tokens == found.cached_tokens


def test_a_probe_sees_its_own_namespace_only() -> None:
    story = SchedulerStory(KVLayout(2, 2, 12))
    story.add("a", [1] * 5, NOTHING, tenant_salt=b"me", cache_salt="s")
    story.run()
    assert probe(story, [1] * 5, "s", b"me").cached_tokens == 4
    for salt, tenant in ((None, b"me"), ("t", b"me"), ("s", b"you"), ("s", None)):
        assert probe(story, [1] * 5, salt, tenant).cached_tokens == 0


def test_a_probe_of_a_server_without_a_cache_finds_nothing() -> None:
    story = SchedulerStory(KVLayout(2, 2, 12), caching=False)
    story.add("a", [1] * 5, NOTHING)
    story.run()
    assert probe(story, [1] * 5).cached_tokens == 0


def test_a_probe_of_a_short_prompt_knows_that_nothing_can_be_found() -> None:
    story = SchedulerStory(KVLayout(4, 4, 12))
    assert [probe(story, [1] * size).best_possible_reuse for size in (1, 4, 5, 9)] == [0, 0, 4, 8]


def test_a_salt_that_a_request_may_not_have_cannot_be_probed() -> None:
    story = SchedulerStory(KVLayout(2, 2, 12), hash_algorithm=ALGORITHMS["sha256_cbor"])
    with pytest.raises(InvalidRequestError):
        probe(story, [1] * 5, "lora:x")


class Heard(CacheListener, SchedulerListener):
    """Writes down what is told of time, room, admission and pins."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def plan_began(self, now: float) -> None:
        self.events.append(("plan", now))

    def prompt_admitted(
        self, request_id: RequestId, chain: BlockChain, num_cached_tokens: int, num_allowed_blocks: int
    ) -> None:
        self.events.append(("admitted", request_id, num_cached_tokens, num_allowed_blocks))

    def room_needed(self, request_id: RequestId, num_pages: int) -> None:
        self.events.append(("room", request_id, num_pages))

    def pins_lapsed(self, pages: list[Page]) -> None:  # type: ignore[override]
        self.events.append(("lapsed", len(pages)))


def test_an_admission_is_told_before_its_room_and_the_time_before_both() -> None:
    """And lapsed pins in between, since what follows may evict their pages."""
    heard = Heard()
    story = SchedulerStory(
        KVLayout(2, 2, 12),
        listener=SchedulerListeners([heard]),
        cache_listener=CacheListeners([heard]),
        max_pinned_pages=2,
        max_model_len=12,
    )
    story.add("a", [1] * 5, NOTHING, retention=(Retention(4, 0.5),))
    story.run()
    story.add("b", [1] * 7, SamplingParams(max_tokens=3, temperature=0.0))
    story.run()
    assert heard.events[:3] == [("plan", 1.0), ("admitted", "a", 0, 2), ("room", "a", 3)]
    assert heard.events[3:7] == [("plan", 2.0), ("lapsed", 2), ("admitted", "b", 4, 3), ("room", "b", 2)]
    assert ("room", "b", 1) in heard.events[7:], "decoding takes a page"


def test_a_request_that_does_not_fit_is_not_said_to_be_admitted() -> None:
    heard = Heard()
    story = SchedulerStory(KVLayout(2, 2, 5), cache_listener=heard, max_model_len=8)
    story.add("a", [1] * 6, SamplingParams(max_tokens=2, temperature=0.0))
    story.add("b", [2] * 6, NOTHING)
    story.step()
    assert [event for event in heard.events if event[0] == "admitted"] == [("admitted", "a", 0, 2)]
