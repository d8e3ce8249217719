"""One line of a log: where its usage object lies, and which lines are no request of their own.

Knows JSON and the envelopes; the fields of a usage object are `shapes.py`'s.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anaphora.cost.shapes import is_usage, read_usage
from anaphora.cost.usage import Usage, UsageShapeError

USAGE_KEYS = ("usage", "usageMetadata", "usage_metadata")
WRAPPERS = ("response", "body", "response_body", "data", "result", "message")
MAX_DEPTH = 5

FRAME_WITHOUT_USAGE = "frames of a stream without usage"
REPEATS_START = "message_delta frames, which repeat the counts of message_start"
FAILED = "responses that are errors"

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A request of a log. `response_id` and `model` are None where the line says none."""

    usage: Usage
    model: str | None
    response_id: str | None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that is no request of its own, and why."""

    reason: str


def read_line(text: str, provider: str | None = None) -> Entry | LeftOut:
    """Return what a line says; UsageShapeError says why it cannot be read."""
    try:
        value = json.loads(text.strip())
    except (ValueError, RecursionError) as error:
        raise UsageShapeError(f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageShapeError(f"holds {type(value).__name__}, but must hold a JSON object")
    holder = next(
        filter(None, (_find(value, MAX_DEPTH, accept) for accept in (_has_usage, is_usage, _has_null))), None
    )
    if holder is None:
        return _without_usage(value)
    if holder.get("type") == "message_delta":
        return LeftOut(REPEATS_START)
    body = _usage_in(holder)
    if body is None:
        if _is_frame(holder) or _is_frame(value):
            return LeftOut(FRAME_WITHOUT_USAGE)
        reason = "the provider did not report the usage of the response: it is null"
        return Entry(
            Usage(provider=provider or owner_of(holder) or "unknown", not_said=reason), _model(holder), None
        )
    # What a response says of itself settles whose `input_tokens` it has. It settles nothing where the fields
    # of two providers are mixed: proxies that translate do that.
    owner = None if "prompt_tokens" in body else owner_of(holder)
    usage = read_usage(body, owner or provider)
    if provider == "server":  # one's own speaks the shapes of others
        usage = replace(usage, provider=provider)
    response_id = holder.get("id")
    return Entry(
        usage, _model(holder) or _model(value), response_id if isinstance(response_id, str) else None
    )


def _find(value: Object, depth: int, accept: Callable[[Object], bool]) -> Object | None:
    """Return the outermost object that is accepted; a copy of its usage further in is not counted again."""
    if accept(value):
        return value
    for name in WRAPPERS if depth else ():
        inner = value.get(name)
        if isinstance(inner, str) and inner.lstrip().startswith("{"):
            inner = _parsed(inner)
        if isinstance(inner, Mapping):
            found = _find(inner, depth - 1, accept)
            if found is not None:
                return found
    return None


def _has_usage(value: Object) -> bool:
    return any(value.get(key) is not None for key in USAGE_KEYS)


def _has_null(value: Object) -> bool:
    return any(key in value for key in USAGE_KEYS)


def _parsed(text: str) -> Any:
    """A body that a proxy logged as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _usage_in(holder: Object) -> Object | None:
    for key in USAGE_KEYS:
        value = holder.get(key)
        if isinstance(value, Mapping):
            return value
        if value is not None:
            raise UsageShapeError(f"{key} is {str(value)[:40]!r}, but must be an object")
    return holder if is_usage(holder) else None


def _without_usage(value: Object) -> LeftOut:
    for body in (value, *(value.get(name) for name in WRAPPERS)):
        if isinstance(body, Mapping):
            if body.get("error"):
                return LeftOut(FAILED)
            if _is_frame(body):
                return LeftOut(FRAME_WITHOUT_USAGE)
    names = ", ".join(str(name)[:40] for name in list(value)[:8]) or "none at all"
    raise UsageShapeError(f"holds no usage object; its fields are: {names}")


def _is_frame(body: Object) -> bool:
    kind, name = body.get("object"), body.get("type")
    return kind in ("chat.completion.chunk", "text_completion.chunk") or (
        isinstance(name, str)
        and (
            name.startswith(("content_block_", "response.", "message_stop", "message_delta"))
            or name == "ping"
        )
    )


def owner_of(holder: Object) -> str | None:
    """Whose response an object says it is, where its usage does not tell."""
    if holder.get("type") == "message":
        return "anthropic"
    if holder.get("object") in ("response", "chat.completion", "chat.completion.chunk", "text_completion"):
        return "openai"
    return None


def _model(body: Object) -> str | None:
    for key in ("model", "modelVersion", "model_version"):
        value = body.get(key)
        if isinstance(value, str) and value:
            return value
    return None
