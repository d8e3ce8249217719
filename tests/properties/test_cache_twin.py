"""The cache against a naive twin made of lists: any mix of admissions, outputs, endings and resets."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conformance.story import CacheStory

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
    free: list[int] = field(default_factory=list)
    holders: dict[int, int] = field(default_factory=dict)
    index: dict[tuple[int, ...], int] = field(default_factory=dict)
    tables: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = list(range(1, self.num_pages))

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
        for page in hits:
            self.holders[page] = self.holders.get(page, 0) + 1
            self.free = [other for other in self.free if other != page]
        self.tables[name] = hits + self.take(num_new)
        self.publish(name, tokens)
        return len(hits) * BLOCK

    def take(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
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
                if page not in self.index.values():
                    self.index.setdefault(tuple(tokens[:end]), page)

    written: set[tuple[str, int]] = field(default_factory=set)

    def grow(self, name: str, tokens: list[int]) -> bool:
        if -(-len(tokens) // BLOCK) > len(self.tables[name]):
            if not self.free:
                return False
            self.tables[name] += self.take(1)
        self.publish(name, tokens)
        return True

    def end(self, name: str) -> None:
        idle = []
        for page in reversed(self.tables.pop(name)):
            self.holders[page] -= 1
            if not self.holders[page]:
                idle.append(page)
        cached = set(self.index.values())
        self.free = [p for p in idle if p not in cached] + self.free + [p for p in idle if p in cached]

    def reset(self) -> bool:
        if self.tables:
            return False
        self.index.clear()
        return True


class CacheMachine(RuleBasedStateMachine):
    """Does everything to both and compares everything."""

    @initialize(num_pages=st.integers(3, 9))
    def begin(self, num_pages: int) -> None:
        """Start with an empty pool."""
        self.story, self.twin = CacheStory(num_pages, BLOCK), Twin(num_pages)
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


TestCacheTwin = CacheMachine.TestCase
TestCacheTwin.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
