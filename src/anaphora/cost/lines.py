"""One line of a log: where its usage object lies, and which lines are no request of their own.

Knows JSON, the envelopes and the frames of streams; the fields of a usage object are `shapes.py`'s, and what the
frames of one message say together is `streams.py`'s.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anaphora.cost.shapes import is_usage, read_usage
from anaphora.cost.usage import Usage, UsageShapeError
from anaphora.nesting import parse_json

USAGE_KEYS = ("usage", "usageMetadata", "usage_metadata")
WRAPPERS = ("response", "body", "response_body", "data", "result", "message")
MAX_DEPTH = 5

FRAME_WITHOUT_USAGE = "lines of streams without usage"
FAILED = "requests that failed, expired or were canceled"

IS_NULL = "the provider did not report the usage of the response: it is null"
NOT_IN_STREAM = (
    "the provider did not report the usage in the stream; ask for it with stream_options.include_usage"
)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """A request of a log. `response_id` and `model` are None where the line says none.

    `is_growing`: a later line with the same id knows better. `is_empty`: the line has no usage, so that any other
    with the same id knows better.
    """

    usage: Usage
    model: str | None
    response_id: str | None
    is_growing: bool = False
    is_empty: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A line that is no request of its own, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Started:
    """The first frame of an Anthropic stream, and its usage object, which the last frame goes over."""

    entry: Entry
    body: Object


@dataclass(frozen=True, slots=True)
class Ended:
    """The last frame of an Anthropic stream: it has no id, and counts of the whole message."""

    body: Object


@dataclass(frozen=True, slots=True)
class Stopped:
    """The sign behind the last frame of an Anthropic stream: a frame of its own, without id and counts."""


Found = Entry | LeftOut | Started | Ended | Stopped


def read_line(text: str, provider: str | None = None) -> Found:
    """Return what a line says; UsageShapeError says why it cannot be read."""
    text = text.strip()
    if text.startswith(("event:", "id:", "retry:", ":")):
        return LeftOut(FRAME_WITHOUT_USAGE)
    text = text.removeprefix("data:").strip()
    if text == "[DONE]":
        return LeftOut(FRAME_WITHOUT_USAGE)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UsageShapeError(f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageShapeError(f"holds {type(value).__name__}, but must hold a JSON object")
    return _read_object(value, provider)


def _read_object(value: Object, provider: str | None) -> Found:
    layers = list(_layers(value, MAX_DEPTH))
    holder = _first(layers, _has_usage) or _first(layers, is_usage)
    if holder is None:
        return _without_usage(value, layers, provider)
    body = _usage_in(holder)
    if holder.get("type") == "message_delta":
        return Ended(body)
    if "candidates" in holder and not is_usage(body):  # the first chunks of a stream of Gemini's
        return LeftOut(FRAME_WITHOUT_USAGE)
    # What a response says of itself settles whose `input_tokens` it has. It settles nothing where the fields
    # of two providers are mixed: proxies that translate do that.
    owner = None if "prompt_tokens" in body else owner_of(holder)
    usage = read_usage(body, owner or provider)
    is_growing = usage.provider == "gemini"
    if provider == "server":  # one's own speaks the shapes of others
        usage = replace(usage, provider=provider)
    entry = Entry(usage, _model(holder) or _model(value), _id(holder), is_growing)
    return Started(entry, body) if _first(layers, _starts_message) else entry


def _layers(value: Object, depth: int) -> Iterator[Object]:
    """Yield an object and those that it wraps, the outer ones first."""
    yield value
    for name in WRAPPERS if depth else ():
        inner = value.get(name)
        if isinstance(inner, str) and inner.lstrip().startswith("{"):
            inner = _parsed(inner)
        if isinstance(inner, Mapping):
            yield from _layers(inner, depth - 1)


def _first(layers: list[Object], accept: Callable[[Object], bool]) -> Object | None:
    """Return the outermost object that is accepted; a copy of its usage further in is not counted again."""
    return next(filter(accept, layers), None)


def _has_usage(value: Object) -> bool:
    return any(value.get(key) is not None for key in USAGE_KEYS)


def _has_null(value: Object) -> bool:
    return any(key in value for key in USAGE_KEYS)


def _starts_message(value: Object) -> bool:
    return value.get("type") == "message_start"


def _parsed(text: str) -> Any:
    """A body that a proxy logged as text."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _usage_in(holder: Object) -> Object:
    for key in USAGE_KEYS:
        value = holder.get(key)
        if isinstance(value, Mapping):
            return value
        if value is not None:
            raise UsageShapeError(f"{key} is {str(value)[:40]!r}, but must be an object")
    return holder


def _without_usage(value: Object, layers: list[Object], provider: str | None) -> Entry | LeftOut | Stopped:
    if any(_failed(layer) for layer in layers):
        return LeftOut(FAILED)
    frame = _first(layers, _is_frame)
    if frame is not None and frame.get("type") == "message_stop":
        return Stopped()
    if frame is not None:
        return _empty(frame, value, NOT_IN_STREAM, provider) if _ends(frame) else LeftOut(FRAME_WITHOUT_USAGE)
    holder = _first(layers, _has_null)
    if holder is not None:
        return _empty(holder, value, IS_NULL, provider)
    names = ", ".join(str(name)[:40] for name in list(value)[:8]) or "none at all"
    raise UsageShapeError(f"holds no usage object; its fields are: {names}")


def _empty(holder: Object, value: Object, reason: str, provider: str | None) -> Entry:
    usage = Usage(provider=provider or owner_of(holder) or "unknown", not_said=reason)
    return Entry(usage, _model(holder) or _model(value), _id(holder), is_empty=True)


def _failed(layer: Object) -> bool:
    return bool(layer.get("error")) or layer.get("type") in ("errored", "expired", "canceled")


def _is_frame(body: Object) -> bool:
    kind, name = body.get("object"), body.get("type")
    return kind in ("chat.completion.chunk", "text_completion.chunk") or (
        isinstance(name, str)
        and (
            name.startswith(("content_block_", "response.", "message_stop", "message_delta"))
            or name == "ping"
        )
    )


def _ends(frame: Object) -> bool:
    """Whether it is the last chunk with a choice; the usage comes with it or right behind it."""
    choices = frame.get("choices")
    return isinstance(choices, list) and any(
        isinstance(choice, Mapping) and choice.get("finish_reason") for choice in choices
    )


def owner_of(holder: Object) -> str | None:
    """Whose response an object says it is, where its usage does not tell."""
    if holder.get("type") == "message":
        return "anthropic"
    if holder.get("object") in ("response", "chat.completion", "chat.completion.chunk", "text_completion"):
        return "openai"
    return None


def _id(body: Object) -> str | None:
    return next(filter(None, (_text(body, name) for name in ("id", "responseId", "response_id"))), None)


def _model(body: Object) -> str | None:
    return next(
        filter(None, (_text(body, name) for name in ("model", "modelVersion", "model_version"))), None
    )


def _text(body: Object, name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and value else None
