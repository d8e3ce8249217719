"""Finds where tools and tool calls stand in a rendered conversation.

The conversation is rendered once more with tools and calls whose objects and texts leave a mark before and
behind themselves wherever they are written: printed, joined to other text, or turned into JSON. They compare,
count and search like the real ones, so that a template decides as before. Without the marks the text must be
the real one; then the marks lie where the objects lie, and otherwise nothing is placed.
"""

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_contents import Range
from anaphora.models.chat_markup import Turn
from anaphora.models.spans import CharSpan

Tools = Sequence[Mapping[str, Any]] | None

_NAMED_PLACES = frozenset(
    {"", "function.name", "function.description", "function.parameters", "function.arguments"}
)
"""What inside a tool or a call is a part of its own; the empty place is the whole of it."""

_DEEP_PLACES = frozenset({"function.parameters", "function.arguments"})
"""What may be large, and is mostly written as a whole."""


class FoundObject(NamedTuple):
    """A part that is a tool or a tool call, or, if not `is_whole`, lies in one; `turn` is the message of a call."""

    part: CharSpan
    turn: int | None
    is_whole: bool


def find_objects(
    text: str, tools: Tools, turns: Sequence[Turn], render: Callable[[Sequence[Turn], Tools], str]
) -> list[FoundObject]:
    """Return the tools and the calls that have one certain place in `text`, which is both of them rendered.

    One that a template writes field by field reaches from the first of its texts and objects to the last.
    `render` is called once if there is anything to find, once more for templates that write schemas or arguments
    item by item, and once more for those that write a field of a tool twice.
    """
    try:
        for is_deep in (False, True):
            marks = _Marks(is_deep=is_deep)
            marked_tools = marks.put_all(tools or (), "tools", None)
            marked_turns = [_marked(marks, index, turn) for index, turn in enumerate(turns)]
            if not marks.owners:
                return []
            plain, places = marks.read(render(marked_turns, marked_tools or tools))
            if plain != text:
                return []
            if not _goes_deeper(marks.owners, places):
                break

        @cache
        def runs_among_others() -> dict[str, list[_Place]]:
            return _runs_among_others(_Marks(is_deep=is_deep), tools or (), turns, render)

        return _found(marks.owners, places, runs_among_others)
    except (
        InvalidRequestError,
        RecursionError,
    ):  # the template cannot live with marks, or they nest too deeply
        return []


def _marked(marks: "_Marks", index: int, turn: Turn) -> Turn:
    calls = turn.fields.get("tool_calls")
    if not calls:
        return turn
    marked = marks.put_all(calls, f"messages[{index}].tool_calls", index)
    return replace(turn, fields={**turn.fields, "tool_calls": marked})


# ---------------------------------------------------------------------------------------------------------------------
# Marks


class _Owner(NamedTuple):
    """What a mark belongs to: the path of a tool or a call, and the place inside it."""

    path: str
    place: str
    turn: int | None


class _Place(NamedTuple):
    """Where one mark lies in the text without marks."""

    start: int
    end: int
    number: int


class _Marks:
    """Marks for one rendering: at the places with a name and the function around them, or, if deep, everywhere."""

    def __init__(self, *, is_deep: bool) -> None:
        self._is_deep = is_deep
        self.owners: list[_Owner] = []
        self._secret = secrets.token_hex(8)  # no caller can know it, so no text holds it

    def put_all(self, values: Sequence[Any], path: str, turn: int | None) -> list[Any]:
        """Return marked copies of the tools, or of the calls of one message, in the list at `path`."""
        return [self._put(value, f"{path}[{i}]", turn, "") for i, value in enumerate(values)]

    def _put(self, value: Any, path: str, turn: int | None, place: str) -> Any:
        """Return a copy of a JSON value whose objects and texts are marked, each with the next number."""
        if isinstance(value, list | tuple):
            return [self._put(item, path, turn, f"{place}[]") for item in value]
        is_marked = self._is_deep or place in _NAMED_PLACES or place == "function"
        if not is_marked or not isinstance(value, str | Mapping):
            return value
        number = len(self.owners)
        self.owners.append(_Owner(path, place, turn))
        before, after = f"{self._secret}x{number}z", f"{self._secret}y{number}z"
        if isinstance(value, str):
            return _MarkedText.make(value, before, after)
        if place in _DEEP_PLACES and not self._is_deep:
            return _MarkedObject.make(value, before, after, is_plain_inside=True)
        prefix = f"{place}." if place else ""
        items = {key: self._put(item, path, turn, f"{prefix}{key}") for key, item in value.items()}
        return _MarkedObject.make(items, before, after, is_plain_inside=False)

    def read(self, marked: str) -> tuple[str, list[_Place]]:
        """Return the text without its marks, and the places of those that are closed, in the text's order."""
        # literal, side, number, literal, side, number, … literal
        pieces = re.split(f"{self._secret}([xy])([0-9]+)z", marked)
        opened: dict[int, list[int]] = {}
        places = []
        offset = len(pieces[0])
        for side, digits, literal in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            number = int(digits)
            if side == "x":
                opened.setdefault(number, []).append(offset)
            elif starts := opened.get(number):
                places.append(_Place(starts.pop(), offset, number))
            offset += len(literal)
        return "".join(pieces[::3]), sorted(places)


class _MarkedText(str):
    """A text that is written with its marks, and is otherwise the text."""

    __slots__ = ("_after", "_before")
    _before: str
    _after: str

    @classmethod
    def make(cls, text: str, before: str, after: str) -> "_MarkedText":
        marked = cls(text)
        marked._before, marked._after = before, after
        return marked

    def __str__(self) -> str:
        return f"{self._before}{str.__str__(self)}{self._after}"

    def __add__(self, other: str) -> str:
        return str(self) + other

    def __radd__(self, other: str) -> str:
        return other + str(self)

    def strip(self, chars: str | None = None, /) -> str:
        """Return the text without what is stripped from its ends, marked as before."""
        return self.make(str.strip(self, chars), self._before, self._after)

    def as_json(self, ensure_ascii: bool) -> str:
        """Return the JSON string with the marks inside its quotes."""
        plain = json.dumps(self, ensure_ascii=ensure_ascii)
        return f'"{self._before}{plain[1:-1]}{self._after}"'


class _MarkedObject(dict[str, Any]):
    """A JSON object that is written with its marks, and is otherwise the object."""

    __slots__ = ("_after", "_before", "is_plain_inside")
    _before: str
    _after: str
    is_plain_inside: bool

    @classmethod
    def make(
        cls, items: Mapping[str, Any], before: str, after: str, *, is_plain_inside: bool
    ) -> "_MarkedObject":
        marked = cls(items)
        marked._before, marked._after, marked.is_plain_inside = before, after, is_plain_inside
        return marked

    def __repr__(self) -> str:
        return f"{self._before}{dict.__repr__(self)}{self._after}"

    def enclose(self, written: str) -> str:
        """Return the object as it was written, between its marks."""
        return f"{self._before}{written}{self._after}"


def marked_to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as `json.dumps` does, but with the marks of what is marked; for the filter `tojson`."""
    step = " " * indent if isinstance(indent, int) else indent
    between, colon = separators or (", " if indent is None else ",", ": ")

    def write(value: Any, margin: str) -> str:
        if isinstance(value, _MarkedText):
            return value.as_json(ensure_ascii)
        if isinstance(value, _MarkedObject):
            return value.enclose(plain(value, margin) if value.is_plain_inside else members(value, margin))
        if isinstance(value, dict):
            return members(value, margin)
        if isinstance(value, list | tuple):
            inner = margin + (step or "")
            return "[" + lines([write(item, inner) for item in value], margin, inner) + "]"
        return plain(value, margin)

    def members(value: Mapping[str, Any], margin: str) -> str:
        inner = margin + (step or "")
        items = sorted(value.items()) if sort_keys else value.items()
        pairs = [f"{plain(key, margin)}{colon}{write(item, inner)}" for key, item in items]
        return "{" + lines(pairs, margin, inner) + "}"

    def lines(items: Sequence[str], margin: str, inner: str) -> str:
        if step is None or not items:
            return between.join(items)
        return inner + (between + inner).join(items) + margin

    def plain(value: Any, margin: str) -> str:
        written = json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        return written.replace("\n", margin)  # texts have their line feeds escaped

    return write(value, "\n")


# ---------------------------------------------------------------------------------------------------------------------
# Placing


def _goes_deeper(owners: Sequence[_Owner], places: Sequence[_Place]) -> bool:
    """Whether something was not written as a whole, and its schema or arguments were not either."""
    written = {(owners[place.number].path, owners[place.number].place) for place in places}
    return any(
        owner.place in _DEEP_PLACES
        and written.isdisjoint((owner.path, at) for at in ("", "function", owner.place))
        for owner in owners
    )


def _found(
    owners: Sequence[_Owner],
    places: Sequence[_Place],
    runs_among_others: Callable[[], dict[str, list[_Place]]],
) -> list[FoundObject]:
    by_number: dict[int, list[_Place]] = {}
    for place in places:
        by_number.setdefault(place.number, []).append(place)
    runs = _lone_runs(owners, places)
    found = []
    for number, owner in enumerate(owners):
        if owner.place not in _NAMED_PLACES:
            continue
        own = by_number.get(number, [])
        if own:
            # What is rendered twice has no one place.
            span = (own[0].start, own[0].end) if len(own) == 1 else None
        else:
            run = [] if owner.place else runs.get(owner.path, [])
            is_certain = not _repeats(run) or _shape(run) == _shape(runs_among_others().get(owner.path, []))
            span = _hull(run) if is_certain else None
        if span and span[0] < span[1]:
            path = f"{owner.path}.{owner.place}" if owner.place else owner.path
            found.append(FoundObject(CharSpan(path, *span), owner.turn, is_whole=not owner.place))
    return found


def _lone_runs(owners: Sequence[_Owner], places: Sequence[_Place]) -> dict[str, list[_Place]]:
    """The places of each tool or call between which no other is written."""
    lone: dict[str, list[_Place]] = {}
    seen: set[str] = set()
    for path, run in groupby(places, lambda place: owners[place.number].path):
        if path in seen:
            lone.pop(path, None)
        else:
            lone[path] = list(run)
        seen.add(path)
    return lone


def _hull(run: Sequence[_Place]) -> Range | None:
    return (run[0].start, max(place.end for place in run)) if run else None


def _repeats(run: Sequence[_Place]) -> bool:
    return len({place.number for place in run}) < len(run)


def _runs_among_others(
    marks: _Marks,
    tools: Sequence[Mapping[str, Any]],
    turns: Sequence[Turn],
    render: Callable[[Sequence[Turn], Tools], str],
) -> dict[str, list[_Place]]:
    """The places of each tool where others stand before and behind it.

    A tool that the template mentions once more because it is the first, the last or the only one is not mentioned
    there, and any other mention stands apart from its places by those of the others.
    """
    if not tools:
        return {}
    _, places = marks.read(render(turns, marks.put_all([tools[0], *tools, tools[0]], "tools", None)))
    runs = _lone_runs(marks.owners, places)
    return {f"tools[{i}]": runs.get(f"tools[{i + 1}]", []) for i in range(len(tools))}


def _shape(run: Sequence[_Place]) -> list[Range]:
    """The places from where the first of them starts."""
    return [(place.start - run[0].start, place.end - run[0].start) for place in run]
