"""The *freeze* policy: the first bytes seen for a value win, and are replayed wherever it comes again."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from anaphora.explain.bodies import canonical
from anaphora.lint.log import MIN_OPENING_CHARS
from anaphora.lint.spots import Source, spots_of
from anaphora.nesting import is_deeper, parse_json

MIN_JSON_CHARS = 8
MAX_JSON_STARTS = 64
_DECODER = json.JSONDecoder()


class Written(NamedTuple):
    """A JSON value somewhere in a body: what it is known by, and how it is written there."""

    path: str
    key: str
    text: str
    is_object: bool = False


class Frozen:
    """Remembers how each value was written first."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def first(self, written: Written) -> str:
        """Return how a value was written first, which is now if it is new."""
        return self._first.setdefault(written.key, written.text)


def arguments_of(source: Source) -> Iterator[Written]:
    """Give the arguments of all tool calls of a body; a call is known by its id, or else by its place."""
    for name in ("messages", "input"):
        items = source.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping):
                yield from _of_message(item, f"{name}[{index}]")


def _of_message(item: Mapping[str, Any], path: str) -> Iterator[Written]:
    if item.get("type") == "function_call":
        yield from _written(f"{path}.arguments", item.get("arguments"), str(item.get("call_id") or path))
    calls, content = item.get("tool_calls"), item.get("content")
    for number, call in enumerate(calls if isinstance(calls, list) else ()):
        own = f"{path}.tool_calls[{number}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            yield from _written(
                f"{own}.function.arguments", function.get("arguments"), str(call.get("id") or own)
            )
    for number, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, Mapping) and part.get("type") == "tool_use":
            own = f"{path}.content[{number}]"
            yield from _written(f"{own}.input", part.get("input"), str(part.get("id") or own))


def _written(path: str, value: Any, owner: str) -> Iterator[Written]:
    if isinstance(value, Mapping):
        yield Written(path, f"{owner} {canonical(value)}", _dumped(value), is_object=True)
    elif isinstance(value, str):
        try:
            yield Written(path, f"{owner} {canonical(parse_json(value))}", value)
        except ValueError:
            return


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Stretch(NamedTuple):
    """A JSON value inside a text."""

    start: int
    end: int
    key: str


def json_in(text: str) -> list[Stretch]:
    """Return the objects and arrays written inside a text, none inside another; the first few of many."""
    found: list[Stretch] = []
    place = tries = 0
    while tries < MAX_JSON_STARTS:
        starts = [spot for spot in (text.find("{", place), text.find("[", place)) if spot >= 0]
        if not starts:
            break
        start, tries = min(starts), tries + 1
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            place = start + 1
            continue
        if is_deeper(value):
            place = end
            continue
        if end - start >= MIN_JSON_CHARS and value:
            found.append(Stretch(start, end, canonical(value)))
        place = end
    return found


class JsonText(NamedTuple):
    """A text that holds JSON; `owner` is what must be equal besides a value for its bytes to be replayed."""

    path: str
    text: str
    owner: str
    stretches: list[Stretch]


def texts_with_json(source: Source) -> Iterator[JsonText]:
    """Give the texts of a body that hold JSON; raw prompts are left out.

    System texts are owned by their path, all others by the conversation too, which its first words tell.
    """
    opening = None
    for spot in spots_of(source):
        stretches = json_in(spot.text) if "{" in spot.text or "[" in spot.text else []
        if opening is None and spot.role == "user":
            opening = _without_bytes(spot.text, stretches)
        if not stretches or spot.role == "prompt":
            continue
        if spot.is_system:
            yield JsonText(spot.path, spot.text, spot.path, stretches)
        elif opening is not None and len(opening) >= MIN_OPENING_CHARS:
            yield JsonText(spot.path, spot.text, f"{spot.path} {opening}", stretches)


def _without_bytes(text: str, stretches: list[Stretch]) -> str:
    made, place = [], 0
    for stretch in stretches:
        made += [text[place : stretch.start], stretch.key]
        place = stretch.end
    return "".join([*made, text[place:]])
