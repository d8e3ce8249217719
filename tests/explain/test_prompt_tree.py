"""The tree of prompts against a list of them."""

from dataclasses import dataclass
from itertools import takewhile
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anaphora.cache.chain import pack_tokens
from anaphora.explain.prompt_tree import NODE_BYTES, Entry, Match, PromptTree

# Tokens of which only the last byte differs, or only the first.
TOKENS = st.lists(st.sampled_from([1, 2, 1 + (1 << 24), 257]), max_size=9)
GROUPS = st.sampled_from(["a", "b", None])


def common(a: list[int], b: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


@dataclass
class Stored:
    """A sequence as the naive list has it."""

    number: int
    group: str | None
    tokens: list[int]
    entry: Entry


class Forest(RuleBasedStateMachine):
    """A tree and a list that get the same sequences."""

    limit: ClassVar[int] = 3

    @initialize()
    def begin(self) -> None:
        """Start with nothing."""
        self.tree, self.stored, self.count = PromptTree(), list[Stored](), 0

    @rule(tokens=TOKENS, group=GROUPS, gap=st.integers(1, 3))
    def add(self, tokens: list[int], group: str | None, gap: int) -> None:
        """A sequence comes; numbers may be left out."""
        self.count += gap
        entry = self.tree.add(self.count, group, pack_tokens(tokens))
        self.stored.append(Stored(self.count, group, tokens, entry))

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), more=TOKENS)
    def extend(self, data: st.DataObject, more: list[int]) -> None:
        """One of them goes on."""
        chosen = data.draw(st.sampled_from(self.stored))
        chosen.tokens = chosen.tokens + more
        self.tree.extend(chosen.entry, pack_tokens(chosen.tokens))

    @precondition(lambda self: self.stored)
    @rule()
    def remove(self) -> None:
        """The oldest goes."""
        self.tree.remove(self.stored.pop(0).entry)

    @rule(tokens=TOKENS, group=GROUPS, limit=st.integers(1, 4))
    def ask(self, tokens: list[int], group: str | None, limit: int) -> None:
        """Whoever shares most comes first: the latest at each length, then another group's if it shares more."""
        found = self.tree.matches(pack_tokens(tokens), group, limit)
        own = [one for one in found if self.group_of(one) == group]
        foreign = [one for one in found if self.group_of(one) != group]
        assert own == self.expected(tokens, group, limit)
        longest = max((common(tokens, s.tokens) for s in self.stored if s.group == group), default=-1)
        further = [s for s in self.stored if s.group != group and common(tokens, s.tokens) > longest]
        if further:
            most = max(common(tokens, s.tokens) for s in further)
            latest = max(s.number for s in further if common(tokens, s.tokens) == most)
            assert foreign == [Match(most, latest)]
            assert found[0] == foreign[0]
        else:
            assert not foreign

    def group_of(self, match: Match) -> str | None:
        return next(s.group for s in self.stored if s.number == match.number)

    def expected(self, tokens: list[int], group: str | None, limit: int) -> list[Match]:
        """From the longest beginning to the empty one, the latest that shares it, each sequence once."""
        found: dict[int, Match] = {}
        lengths = {common(tokens, s.tokens) for s in self.stored} | {0}
        for length in sorted(lengths, reverse=True):
            sharing = [
                s.number for s in self.stored if s.group == group and common(tokens, s.tokens) >= length
            ]
            if sharing:
                found.setdefault(max(sharing), Match(length, max(sharing)))
        return list(found.values())[:limit]

    @invariant()
    def every_sequence_is_stored_as_it_came(self) -> None:
        """Whatever was split since."""
        for one in self.stored:
            assert PromptTree.packed(one.entry) == pack_tokens(one.tokens)

    @invariant()
    def what_is_common_is_stored_once(self) -> None:
        """And nothing costs anything when nothing is stored."""
        beginnings = {tuple(s.tokens[: end + 1]) for s in self.stored for end in range(len(s.tokens))}
        if not self.stored:
            assert self.tree.size_bytes == 0
        assert self.tree.size_bytes % NODE_BYTES >= 0
        num_nodes = (self.tree.size_bytes - 4 * len(beginnings)) / NODE_BYTES
        assert num_nodes == int(num_nodes), "a token is stored twice, or lost"
        assert num_nodes <= max(0, len(beginnings))


TestForest = Forest.TestCase
TestForest.settings = settings(max_examples=60, stateful_step_count=30)


def tree_of(*sequences: list[int]) -> tuple[PromptTree, list[Entry]]:
    tree = PromptTree()
    return tree, [tree.add(number, "g", pack_tokens(tokens)) for number, tokens in enumerate(sequences)]


def test_the_longest_common_beginning_wins_and_of_equals_the_latest() -> None:
    tree, _ = tree_of([1, 2, 3, 4], [1, 2, 9], [1, 2, 9], [7])
    assert tree.matches(pack_tokens([1, 2, 9, 5]), "g", 8) == [Match(3, 2), Match(0, 3)]
    assert tree.matches(pack_tokens([1, 2, 3, 5]), "g", 8) == [Match(3, 0), Match(2, 2), Match(0, 3)]


def test_a_node_in_which_a_sequence_ends_is_split_beneath_it() -> None:
    """The shorter one ends where the longer one is cut, and both stay what they were."""
    tree, (long, short) = tree_of([1, 2, 3, 4], [1, 2])
    assert [PromptTree.packed(entry) for entry in (long, short)] == [
        pack_tokens([1, 2, 3, 4]),
        pack_tokens([1, 2]),
    ]
    tree.remove(long)
    assert tree.size_bytes == NODE_BYTES + 8
    tree.remove(short)
    assert tree.size_bytes == 0


def test_a_sequence_that_goes_on_is_found_by_what_came_later_and_keeps_its_number() -> None:
    tree, (first, _) = tree_of([1, 2], [5])
    tree.extend(first, pack_tokens([1, 2, 3, 4]))
    assert tree.matches(pack_tokens([1, 2, 3, 4, 5]), "g", 1) == [Match(4, 0)]
    tree.remove(first)
    assert tree.matches(pack_tokens([1, 2, 3, 4, 5]), "g", 8) == [Match(0, 1)]


def test_another_group_is_named_only_where_it_shares_more() -> None:
    tree = PromptTree()
    tree.add(0, "mine", pack_tokens([1, 2]))
    tree.add(1, "theirs", pack_tokens([1, 2, 3]))
    assert tree.matches(pack_tokens([1, 2, 3]), "mine", 8) == [Match(3, 1), Match(2, 0)]
    assert tree.matches(pack_tokens([1, 2]), "mine", 8) == [Match(2, 0)]


def test_an_empty_sequence_shares_nothing_with_anybody() -> None:
    tree, (entry,) = tree_of([])
    assert (tree.size_bytes, PromptTree.packed(entry)) == (0, b"")
    assert tree.matches(pack_tokens([1]), "g", 8) == [Match(0, 0)]
    tree.remove(entry)
    assert tree.matches(b"", "g", 8) == []


def test_a_chain_of_twelve_hundred_turns_needs_no_recursion() -> None:
    """Every turn is the beginning of the next."""
    tree = PromptTree()
    entries = [tree.add(number, "g", pack_tokens(range(number + 1))) for number in range(1_200)]
    assert tree.size_bytes == 1_200 * (NODE_BYTES + 4)
    for entry in entries:
        tree.remove(entry)
    assert tree.size_bytes == 0
