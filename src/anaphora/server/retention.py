"""`cache_control`: which beginnings of a prompt are to stay cached, and for how long.

A hint, as in the Anthropic API: a mark that finds no place, and a pin that is refused, are counted and fail no
request. Knows nothing of pages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anaphora.models.spans import Span
from anaphora.request import Retention
from anaphora.server.fields import UnknownFields
from anaphora.server.prompts import Prompt
from anaphora.server.validation import wrong

TTLS_S = {"5m": 300.0, "1h": 3600.0}
DEFAULT_TTL = "5m"

_FIELDS = frozenset({"type", "ttl"})


@dataclass(frozen=True, slots=True)
class Mark:
    """All of a prompt up to the end of the part at `path` is to stay cached; an empty path is the whole prompt."""

    path: str
    ttl_s: float


def read_ttl(value: Any, path: str) -> float:
    """Return the seconds that a time to live stands for."""
    if not isinstance(value, str) or value not in TTLS_S:
        raise wrong(path, value, " or ".join(f'"{name}"' for name in TTLS_S))
    return TTLS_S[value]


def read_marks(whole: Any, messages: Sequence[Mapping[str, Any]], unknown: UnknownFields) -> list[Mark]:
    """Return the marks of a body: its own `cache_control`, which stands for the whole prompt, and those inside.

    `messages` have been checked, apart from their marks.
    """
    marks = [] if whole is None else [Mark("", _read(whole, "cache_control", "cache_control", unknown))]
    for path, general_path, value in _found(messages):
        if value is not None:
            where = f"{path}.cache_control"
            marks.append(Mark(path, _read(value, where, f"{general_path}.cache_control", unknown)))
    return marks


def _found(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Any]]:
    """Yield the path of each message and part, the name of all such paths, and its mark or None."""
    for i, message in enumerate(messages):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            yield f"messages[{i}].content[{j}]", "messages[].content[]", part.get("cache_control")
        yield f"messages[{i}]", "messages[]", message.get("cache_control")


def _read(value: Any, path: str, general_path: str, unknown: UnknownFields) -> float:
    if not isinstance(value, dict):
        raise wrong(path, value, 'an object such as {"type": "ephemeral", "ttl": "5m"}')
    if value.get("type") != "ephemeral":
        raise wrong(f"{path}.type", value.get("type"), '"ephemeral"')
    unknown.report_others(value, _FIELDS, general_path)
    ttl = value.get("ttl")
    return read_ttl(DEFAULT_TTL if ttl is None else ttl, f"{path}.ttl")


def retaining(prompt: Prompt, marks: Sequence[Mark], count_unplaced: Callable[[], None]) -> Prompt:
    """Return a prompt that asks to keep what is marked: for each time to live the longest of its beginnings.

    A part that cannot be found in the rendered prompt is marked up to the beginning of its message, which is
    less than was asked for but never something else. If that is unknown too, `count_unplaced` is called.
    """
    spans = {span.path: span for span in prompt.spans.spans} if marks and prompt.spans else {}
    longest: dict[float, int] = {}
    for mark in marks:
        end = len(prompt.token_ids) if not mark.path else _end(mark.path, spans)
        if end is None:
            count_unplaced()
        else:
            longest[mark.ttl_s] = max(end, longest.get(mark.ttl_s, 0))
    return replace(prompt, retention=tuple(_not_covered(longest)))


def _end(path: str, spans: Mapping[str, Span]) -> int | None:
    if path in spans:
        return spans[path].token_end
    message = spans.get(path.partition(".")[0])
    return None if message is None else message.token_start


def _not_covered(longest: Mapping[float, int]) -> Iterator[Retention]:
    """Yield what is to be kept, the longest-lived first; what is kept longer anyway needs no second pin."""
    num_covered = 0
    for ttl_s in sorted(longest, reverse=True):
        if longest[ttl_s] > num_covered:
            num_covered = longest[ttl_s]
            yield Retention(num_covered, ttl_s)
