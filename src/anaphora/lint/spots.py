"""The texts of a body as it was sent, by their paths, and bodies with other texts: for all APIs alike.

Changes nothing in place: an edited body shares what was not edited with the one it was made from.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from anaphora.explain.bodies import SYSTEM_ROLES

Source = Mapping[str, Any]
_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_LISTS = ("messages", "input")


class Spot(NamedTuple):
    """A text, its path, and who speaks there; `message` counts messages, -1 outside of them."""

    path: str
    role: str
    text: str
    message: int = -1

    @property
    def is_system(self) -> bool:
        """Whether the application speaks here."""
        return self.role in SYSTEM_ROLES


def spots_of(source: Source) -> Iterator[Spot]:
    """Give the texts of a body, in the order in which they are rendered."""
    if isinstance(source.get("prompt"), str):
        yield Spot("prompt", "prompt", source["prompt"])
    for name in ("system", "instructions"):
        yield from _content_spots(source.get(name), name, "system", -1)
    if isinstance(source.get("input"), str):
        yield Spot("input", "user", source["input"], 0)
    for name in _LISTS:
        items = source.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, Mapping):
                role = str(item.get("role") or item.get("type"))
                yield from _content_spots(item.get("content"), f"{name}[{index}].content", role, index)


def _content_spots(content: Any, path: str, role: str, index: int) -> Iterator[Spot]:
    if isinstance(content, str):
        yield Spot(path, role, content, index)
    elif isinstance(content, list):
        for number, part in enumerate(content):
            own = f"{path}[{number}]"
            if isinstance(part, str):
                yield Spot(own, role, part, index)
            elif isinstance(part, Mapping) and (key := _text_key(part)):
                yield Spot(f"{own}.{key}", role, part[key], index)
            elif isinstance(part, Mapping) and part.get("type") == "tool_result":
                yield from _content_spots(part.get("content"), f"{own}.content", "tool", index)


def _text_key(part: Mapping[str, Any]) -> str | None:
    key = _TEXT_KEYS.get(str(part.get("type", "text")))
    return key if key is not None and isinstance(part.get(key), str) else None


def text_leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Give the strings inside a JSON value with their paths."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if "." not in name and "[" not in name and "]" not in name:  # a path could not be read back
                yield from text_leaves(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from text_leaves(item, f"{path}[{index}]")


def value_at(value: Any, path: str) -> Any:
    """Return what stands at a path of a body, or None."""
    for key in _keys(path):
        is_index = isinstance(key, int) and isinstance(value, list) and key < len(value)
        if not is_index and not (isinstance(key, str) and isinstance(value, Mapping)):
            return None
        value = value[key] if is_index else value.get(key)
    return value


def with_value(source: Source, path: str, new: Any) -> Source:
    """Return a body with another value at a path that exists."""
    made: Source = _with_value(source, _keys(path), new)
    return made


def _with_value(owner: Any, keys: list[str | int], new: Any) -> Any:
    if not keys:
        return new
    key, rest = keys[0], keys[1:]
    if isinstance(owner, list):
        return [_with_value(item, rest, new) if i == key else item for i, item in enumerate(owner)]
    return {name: _with_value(item, rest, new) if name == key else item for name, item in owner.items()}


def _keys(path: str) -> list[str | int]:
    found = re.findall(r"\[(\d+)\]|([^.\[\]]+)", path)
    return [int(index) if index else name for index, name in found]


def with_text_at_end(source: Source, text: str) -> Source | None:
    """Return a body whose last user message ends with one more text; None when there is no user message."""
    if isinstance(source.get("prompt"), str):
        return {**source, "prompt": f"{source['prompt']}\n\n{text}"}
    if isinstance(source.get("input"), str):
        return {**source, "input": f"{source['input']}\n\n{text}"}
    for name in _LISTS:
        items = source.get(name)
        owned = list(enumerate(items)) if isinstance(items, list) else []
        for index, item in reversed(owned):
            if isinstance(item, Mapping) and item.get("role") == "user":
                return _grown(source, f"{name}[{index}].content", text, name)
    return None


def _grown(source: Source, path: str, text: str, name: str) -> Source | None:
    content = value_at(source, path)
    if isinstance(content, str):
        return with_value(source, path, f"{content}\n\n{text}")
    if not isinstance(content, list):
        return None
    last = content[-1] if content else None
    if isinstance(last, str):
        return with_value(source, f"{path}[{len(content) - 1}]", f"{last}\n\n{text}")
    if isinstance(last, Mapping) and (key := _text_key(last)):
        return with_value(source, f"{path}[{len(content) - 1}].{key}", f"{last[key]}\n\n{text}")
    part = {"type": "input_text" if name == "input" else "text", "text": text}
    return with_value(source, path, [*content, part])


def move_to_end(source: Source, path: str, snippets: list[str]) -> Source:
    """Return a body in which some snippets of one text stand at the end of the last user message.

    A snippet that is not there is left out of account; where there is no user message, nothing moves.
    """
    text = value_at(source, path)
    moved = []
    for snippet in snippets:
        if isinstance(text, str) and snippet and snippet in text:
            text = text.replace(snippet, "", 1)
            moved.append(snippet)
    if not moved:
        return source
    return with_text_at_end(with_value(source, path, text), "\n".join(moved)) or source


_SENTENCE_END = re.compile(r"[.!?](?=\s)")
MAX_SENTENCE_CHARS = 300


def sentence_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the sentence of one line that holds a range; the range itself where that would be long."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    first = max((m.end() for m in _SENTENCE_END.finditer(text, line_start, start)), default=line_start)
    behind = _SENTENCE_END.search(text, end, line_end)
    last = behind.end() if behind else line_end
    first += len(text[first:start]) - len(text[first:start].lstrip())
    return (first, last) if last - first <= MAX_SENTENCE_CHARS else (start, end)
