"""The requests of a log in their order, and for each the earlier ones it is compared with.

No request is compared with all others: prompts are found again block by block, conversations by their first words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from anaphora.explain.alignment import common_length
from anaphora.explain.log_entries import LogEntry
from anaphora.explain.records import HitLaw, PromptRecord
from anaphora.explain.values import Piece, pieces
from anaphora.lint.spots import Source, Spot, spots_of

MIN_OPENING_CHARS = 24
"""The first words of a user that are shorter may open two conversations by chance."""


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One request of a log: the line, the entry, and the body as a prompt."""

    line: int
    entry: LogEntry
    record: PromptRecord

    @property
    def source(self) -> Source:
        """The body as it was sent."""
        return self.entry.body


class Neighbour(NamedTuple):
    """The number of an earlier request, and how many leading tokens it has in common with this one."""

    request: int
    num_matched: int


class Log:
    """All requests that could be read. Everything is computed when first asked for, once."""

    def __init__(self, requests: Sequence[LoggedRequest], law: HitLaw) -> None:
        self.requests = tuple(requests)
        self.law = law
        self._pieces: dict[str, tuple[Piece, ...]] = {}

    def __len__(self) -> int:
        """How many requests there are."""
        return len(self.requests)

    @property
    def sources(self) -> list[Source]:
        """The bodies as they were sent."""
        return [request.source for request in self.requests]

    @property
    def records(self) -> list[PromptRecord]:
        """The prompts."""
        return [request.record for request in self.requests]

    @cached_property
    def spots(self) -> list[tuple[Spot, ...]]:
        """The texts of each request."""
        return [tuple(spots_of(source)) for source in self.sources]

    def pieces(self, text: str) -> tuple[Piece, ...]:
        """Cut a text into values and what stands between them; remembers what it cut."""
        if text not in self._pieces:
            self._pieces[text] = tuple(pieces(text))
        return self._pieces[text]

    def skeleton(self, text: str) -> str:
        """Return a text with the class of each value in its place."""
        return "".join(f"\0{piece.kind}\0" if piece.kind else piece.text for piece in self.pieces(text))

    @cached_property
    def nearest(self) -> list[Neighbour | None]:
        """For each request, the earlier one with the longest match in whole blocks, the latest among equals.

        Where not even a block matches: the latest whose first text is alike but for values, else the one before.
        """
        tree = _Tree(self.law.block_size)
        fronts: dict[str, int] = {}
        found: list[Neighbour | None] = []
        for index, record in enumerate(self.records):
            front = self.skeleton(self.spots[index][0].text) if self.spots[index] else ""
            near = tree.add(record.token_ids, index)
            if near is None:
                near = fronts.get(front, index - 1 if index else None)
            fronts[front] = index
            found.append(None if near is None else self.neighbour(near, index))
        return found

    @cached_property
    def previous_turn(self) -> list[int | None]:
        """For each request, the latest earlier one that a user opened with the same words, or None."""
        latest: dict[str, int] = {}
        found = []
        for index, spots in enumerate(self.spots):
            words = opening_of(spots)
            found.append(latest.get(words) if words is not None else None)
            if words is not None:
                latest[words] = index
        return found

    def neighbour(self, earlier: int, index: int) -> Neighbour:
        """Return an earlier request with its match, counted token by token."""
        ids = [tuple(self.records[i].token_ids) for i in (earlier, index)]
        return Neighbour(earlier, common_length(ids[0], ids[1]))

    def tools_of(self, index: int) -> list[Mapping[str, object]]:
        """Return the tools of a request as they were sent."""
        tools = self.sources[index].get("tools")
        return [tool for tool in tools if isinstance(tool, Mapping)] if isinstance(tools, list) else []


def opening_of(spots: Sequence[Spot]) -> str | None:
    """Return the first words of the user in a conversation, or None where they are too few to know it by."""
    first = next((spot for spot in spots if spot.role == "user"), None)
    return first.text if first is not None and len(first.text.strip()) >= MIN_OPENING_CHARS else None


class _Tree:
    """Chains of whole blocks, and which request went through each block last."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._nodes: dict[tuple[int, tuple[int, ...]], int] = {}
        self._latest: dict[int, int] = {}

    def add(self, token_ids: Sequence[int], index: int) -> int | None:
        """Return the request that went furthest along a prompt's blocks, then add this one."""
        size, parent, found = self._block_size, 0, None
        for start in range(0, len(token_ids) - size + 1, size):
            key = (parent, tuple(token_ids[start : start + size]))
            parent = self._nodes.setdefault(key, len(self._nodes) + 1)
            found = self._latest.get(parent, found)
            self._latest[parent] = index
        return found
