"""A tree of token sequences that stores every common beginning once, and finds who shares the longest one.

Pure: sequences are packed tokens (4 bytes each), numbered in the order in which they came.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from anaphora.cache.hashing import TOKEN_BYTES
from anaphora.cache.siblings import common_tokens

NODE_BYTES = 500
"""What a node costs besides its tokens, roughly."""


class Match(NamedTuple):
    """A sequence that shares its first `num_tokens` with the one that was asked for."""

    num_tokens: int
    number: int


class Node:
    """A stretch of tokens; the sequence that ends here is what stands on the way from the root.

    `latest` is the highest number among the sequences that pass, by group.
    """

    __slots__ = ("children", "label", "latest", "num_sequences", "parent")

    def __init__(self, label: bytes, parent: "Node | None") -> None:
        self.label = label
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.latest: dict[Hashable, int] = {}
        self.num_sequences = 0

    def path(self) -> list["Node"]:
        """Return the nodes from the root to this one."""
        nodes = [self]
        while (parent := nodes[-1].parent) is not None:
            nodes.append(parent)
        return nodes[::-1]


@dataclass(slots=True)
class Entry:
    """A sequence in the tree: its number, its group, and where it ends."""

    number: int
    group: Hashable
    node: Node


class PromptTree:
    """Sequences in groups, a group being those whose K/V could be shared.

    They must be removed in the order of their numbers: who is the latest in a part of the tree is known only then.
    Every verb costs O(tokens) in copies and comparisons of bytes, not in Python's steps.
    """

    def __init__(self) -> None:
        self._root = Node(b"", None)
        self.size_bytes = 0

    def add(self, number: int, group: Hashable, packed: bytes) -> Entry:
        """Add a sequence; its number must be higher than all before."""
        entry = Entry(number, group, self._insert(packed))
        for node in entry.node.path():
            self._enter(node, entry)
        return entry

    def extend(self, entry: Entry, packed: bytes) -> None:
        """Put a sequence that goes on where one ends in its place, under the same number."""
        end = self._insert(packed)
        known = set(map(id, entry.node.path()))
        entry.node = end
        for node in end.path():
            if id(node) not in known:
                self._enter(node, entry)

    def remove(self, entry: Entry) -> None:
        """Remove the sequence with the lowest number."""
        for node in reversed(entry.node.path()):
            node.num_sequences -= 1
            # No later one of its group passes here, and earlier ones are gone.
            if node.latest.get(entry.group) == entry.number:
                del node.latest[entry.group]
            if not node.num_sequences and node.parent is not None:
                del node.parent.children[node.label[:TOKEN_BYTES]]
                self.size_bytes -= len(node.label) + NODE_BYTES

    @staticmethod
    def packed(entry: Entry) -> bytes:
        """Return a sequence."""
        return b"".join(node.label for node in entry.node.path())

    def matches(self, packed: bytes, group: Hashable, limit: int) -> list[Match]:
        """Return sequences that share a beginning with this one, the longest first: at each turning the latest.

        Up to `limit` of the group, and one of another group if it shares more than all of the group do.
        """
        found: dict[int, Match] = {}
        foreign: Match | None = None
        for num_tokens, node in reversed(list(self._walk(packed))):
            if (number := node.latest.get(group)) is not None:
                found.setdefault(number, Match(num_tokens, number))
            elif not found and foreign is None and node.latest:
                foreign = Match(num_tokens, max(node.latest.values()))
            if len(found) == limit:
                break
        return [*([foreign] if foreign else []), *found.values()]

    def _walk(self, packed: bytes) -> Iterator[tuple[int, Node]]:
        """Yield the nodes that share anything with a sequence, and how many tokens they share up to there."""
        node, place = self._root, 0
        yield 0, node
        while child := node.children.get(packed[place : place + TOKEN_BYTES]):
            length = TOKEN_BYTES * common_tokens(child.label, packed[place : place + len(child.label)])
            place += length
            yield place // TOKEN_BYTES, child
            if length < len(child.label):
                return
            node = child

    def _insert(self, packed: bytes) -> Node:
        """Return the node in which a sequence ends, making it if there is none."""
        node, place = self._root, 0
        while place < len(packed):
            child = node.children.get(packed[place : place + TOKEN_BYTES])
            if child is None:
                return self._grow(node, packed[place:])
            length = TOKEN_BYTES * common_tokens(child.label, packed[place : place + len(child.label)])
            node = child if length == len(child.label) else self._split(child, length)
            place += length
        return node

    def _grow(self, parent: Node, label: bytes) -> Node:
        node = parent.children[label[:TOKEN_BYTES]] = Node(label, parent)
        self.size_bytes += len(label) + NODE_BYTES
        return node

    def _split(self, node: Node, length: int) -> Node:
        """Cut a node in two and return the upper one; sequences that end in the node end in the lower one."""
        parent = node.parent
        assert parent is not None, "the root has no tokens to split"
        upper = Node(node.label[:length], parent)
        upper.latest, upper.num_sequences = node.latest.copy(), node.num_sequences
        parent.children[upper.label[:TOKEN_BYTES]] = upper
        node.label, node.parent = node.label[length:], upper
        upper.children[node.label[:TOKEN_BYTES]] = node
        self.size_bytes += NODE_BYTES
        return upper

    @staticmethod
    def _enter(node: Node, entry: Entry) -> None:
        node.num_sequences += 1
        node.latest[entry.group] = max(entry.number, node.latest.get(entry.group, -1))
