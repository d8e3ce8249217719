"""The cache against a naive twin made of lists: any mix of admissions, outputs, pins, endings and resets.

Once for each eviction policy: the page that is taken next is the one that a slow implementation of it picks.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anaphora.config import EvictionPolicyName
from tests.conformance.story import CacheStory
from tests.properties.naive_eviction import NAIVE, NaiveLRU

BLOCK = 2
# Few tokens and a common beginning: prompts must meet each other often.
PROMPTS = st.builds(
    lambda shared, tail: [7, 7, 8, 8, 9, 9, 5, 5][:shared] + tail,
    st.integers(0, 8),
    st.lists(st.integers(0, 1), min_size=1, max_size=7),
)


@dataclass
class Twin:
    """Pages of one block each, as plain lists: what cache-semantics says, done the slow way."""

    num_pages: int
    policy: NaiveLRU
    max_pinned: int
    empty: list[int] = field(default_factory=list)
    pinned: dict[int, float] = field(default_factory=dict)
    holders: dict[int, int] = field(default_factory=dict)
    index: dict[tuple[int, ...], int] = field(default_factory=dict)
    tables: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.empty = list(range(1, self.num_pages))

    @property
    def free(self) -> list[int]:
        return self.empty + self.policy.order()

    def hits(self, tokens: list[int]) -> list[int]:
        pages = []
        for end in range(BLOCK, len(tokens), BLOCK):
            if tuple(tokens[:end]) not in self.index:
                break
            pages.append(self.index[tuple(tokens[:end])])
        return pages

    def admit(self, name: str, tokens: list[int]) -> int | None:
        hits = self.hits(tokens)
        num_new = -(-len(tokens) // BLOCK) - len(hits)
        if num_new + sum(page in self.free for page in hits) > len(self.free):
            return None
        self.hold(hits)
        self.policy.hit(hits)
        self.tables[name] = hits + self.take(num_new)
        self.publish(name, tokens)
        return len(hits) * BLOCK

    def hold(self, pages: list[int]) -> None:
        for page in pages:
            if not self.holders.get(page):
                self.policy.remove(page)
            self.holders[page] = self.holders.get(page, 0) + 1

    def take(self, count: int) -> list[int]:
        taken, self.empty = self.empty[:count], self.empty[count:]
        taken += self.policy.take(count - len(taken))
        self.index = {prefix: page for prefix, page in self.index.items() if page not in taken}
        self.holders.update(dict.fromkeys(taken, 1))
        return taken

    def publish(self, name: str, tokens: list[int]) -> None:
        for at, page in enumerate(self.tables[name]):
            end = (at + 1) * BLOCK
            # A page whose block was a duplicate when written stays without a digest for ever.
            is_new_block = end <= len(tokens) and (name, at) not in self.written
            if is_new_block:
                self.written.add((name, at))
                if page not in self.index.values() and tuple(tokens[:end]) not in self.index:
                    self.index[tuple(tokens[:end])] = page
                    self.policy.publish(page, at)

    written: set[tuple[str, int]] = field(default_factory=set)

    def grow(self, name: str, tokens: list[int]) -> bool:
        if -(-len(tokens) // BLOCK) > len(self.tables[name]):
            if not self.free:
                return False
            self.tables[name] += self.take(1)
        self.publish(name, tokens)
        return True

    def end(self, name: str) -> None:
        self.release(self.tables.pop(name)[::-1])

    def release(self, pages: list[int]) -> None:
        idle = []
        for page in pages:
            self.holders[page] -= 1
            if not self.holders[page]:
                idle.append(page)
        cached = set(self.index.values())
        self.empty = [p for p in idle if p not in cached] + self.empty
        self.policy.add([p for p in idle if p in cached], [p for p in pages if p in cached])

    def pin(self, tokens: list[int], until: float) -> int | None:
        pages = self.hits([*tokens, 0])
        new = [page for page in pages if page not in self.pinned]
        if len(self.pinned) + len(new) > self.max_pinned:
            return None
        self.hold(new)
        for page in pages:
            self.pinned[page] = max(until, self.pinned.get(page, until))
        return len(pages) * BLOCK

    def lapse(self, now: float) -> int:
        lapsed = [page for page, until in self.pinned.items() if until <= now]
        self.pinned = {page: until for page, until in self.pinned.items() if until > now}
        if lapsed:
            self.release(sorted(lapsed, key=lambda page: -self.policy.depths[page]))
        return len(lapsed)

    def reset(self) -> bool:
        if self.tables:
            return False
        self.lapse(float("inf"))
        self.empty += self.policy.take(len(self.policy.idle))
        self.index.clear()
        return True

    def usage(self) -> tuple[int, int, int]:
        used = {page for table in self.tables.values() for page in table}
        return len(used), self.num_pages - 1 - len(used) - len(self.empty), len(self.empty)


class CacheMachine(RuleBasedStateMachine):
    """Does everything to both and compares everything."""

    policy: ClassVar[EvictionPolicyName] = "lru"

    @initialize(num_pages=st.integers(3, 12), max_pinned=st.integers(0, 4))
    def begin(self, num_pages: int, max_pinned: int) -> None:
        """Start with an empty pool."""
        self.story = CacheStory(num_pages, BLOCK, policy=self.policy, max_pinned_pages=max_pinned)
        self.twin = Twin(num_pages, NAIVE[self.policy](num_pages - 1, BLOCK), max_pinned)
        self.now = 0.0
        self.tokens: dict[str, list[int]] = {}
        self.count = 0

    @rule(tokens=PROMPTS)
    def admit(self, tokens: list[int]) -> None:
        """A request comes."""
        self.count += 1
        name = f"R{self.count}"
        admitted, hit = self.story.admit(name, tokens), self.twin.admit(name, tokens)
        assert (admitted.hit if admitted else None) == hit
        if admitted:
            self.tokens[name] = list(tokens)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), token=st.integers(0, 1))
    def decode(self, data: st.DataObject, token: int) -> None:
        """A request grows by one token; a refusal ends it."""
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        self.tokens[name].append(token)
        could, twin_could = self.story.decode(name, [token]), self.twin.grow(name, self.tokens[name])
        assert could == twin_could
        if not could:
            self.finish(name)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """A request ends, for whatever reason."""
        self.finish(data.draw(st.sampled_from(sorted(self.tokens))))

    def finish(self, name: str) -> None:
        """End it in both."""
        del self.tokens[name]
        self.story.free(name)
        self.twin.end(name)

    @rule(tokens=PROMPTS, ttl=st.integers(0, 5))
    def pin(self, tokens: list[int], ttl: int) -> None:
        """A prefix is to be kept for a while; what was refused changed nothing."""
        before = self.story.order
        pinned = self.story.pin(tokens, self.now + ttl)
        assert pinned == self.twin.pin(tokens, self.now + ttl)
        if pinned is None:
            assert self.story.order == before
            assert self.story.log.entries[-1][0] == "pin refused"

    @rule(passed=st.integers(0, 3))
    def lapse(self, passed: int) -> None:
        """Time passes."""
        self.now += passed
        assert self.story.lapse(self.now) == self.twin.lapse(self.now)

    @rule()
    def reset(self) -> None:
        """Forget everything, if nobody holds a page."""
        assert self.story.manager.reset() == self.twin.reset()

    @rule(tokens=PROMPTS)
    def look(self, tokens: list[int]) -> None:
        """A question changes nothing."""
        before = (self.story.order, self.story.indexed(), len(self.story.log.entries))
        assert self.story.hit(tokens) == len(self.twin.hits(tokens)) * BLOCK
        assert (self.story.order, self.story.indexed(), len(self.story.log.entries)) == before

    @invariant()
    def they_agree(self) -> None:
        """Free order, page tables and index."""
        if not hasattr(self, "story"):
            return
        assert self.story.order == self.twin.free
        assert self.story.usage == self.twin.usage()
        assert self.story.manager.pool.num_pinned_pages == len(self.twin.pinned)
        assert {name: self.story.pages(name) for name in self.tokens} == self.twin.tables
        assert sorted(self.story.indexed()) == sorted(self.twin.index.values())
        self.story.manager.check_invariants()

    def teardown(self) -> None:
        """Whatever happened, every page comes back."""
        for name in sorted(self.tokens) if hasattr(self, "story") else []:
            self.story.free(name)
            self.twin.end(name)
        if hasattr(self, "story"):
            assert self.story.usage[0] == 0
            assert self.story.order == self.twin.free
            self.story.lapse(float("inf"))
            assert len(self.story.order) == self.twin.num_pages - 1


class SegmentedMachine(CacheMachine):
    """Segmented LRU."""

    policy: ClassVar[EvictionPolicyName] = "slru"


class FrequencyMachine(CacheMachine):
    """LFU with aging."""

    policy: ClassVar[EvictionPolicyName] = "lfu"


class CostMachine(CacheMachine):
    """Recompute cost × likelihood."""

    policy: ClassVar[EvictionPolicyName] = "cost"


TestCacheTwin = CacheMachine.TestCase
TestCacheTwin.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestSegmentedTwin = SegmentedMachine.TestCase
TestSegmentedTwin.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestFrequencyTwin = FrequencyMachine.TestCase
TestFrequencyTwin.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestCostTwin = CostMachine.TestCase
TestCostTwin.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
