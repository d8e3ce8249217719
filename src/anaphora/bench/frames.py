"""A stream of server-sent events, read after it has ended, so that reading does not slow the measuring.

Knows the chunks of chat completions and completions, not how they came.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
MAX_COUNT = 2**40
"""No request has so many tokens; what is above is no count."""


@dataclass(slots=True)
class Transcript:
    """What a stream said, and when its content came."""

    content_at: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    usage: Json | None = None
    ended_at: float | None = None
    error: str | None = None
    is_complete: bool = False

    @property
    def text(self) -> str:
        """The whole output."""
        return "".join(self.texts)

    @property
    def first_at(self) -> float | None:
        """When the first content came; an output without any text came when it ended."""
        return self.content_at[0] if self.content_at else self.ended_at


def read_stream(chunks: Sequence[tuple[float, bytes]]) -> Transcript:
    """Return what a stream said; a frame came when its last byte came."""
    transcript = Transcript()
    for arrived_at, data in _events(chunks):
        if data == b"[DONE]":
            transcript.is_complete = True
            break
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            transcript.error = f"an event of the stream is not JSON: {data[:80]!r}"
            break
        if isinstance(event, dict):
            _read_event(event, arrived_at, transcript)
    return transcript


def _events(chunks: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    rest = b""
    for arrived_at, chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield arrived_at, line[5:].strip()
    if chunks and rest.startswith(b"data:"):
        yield chunks[-1][0], rest[5:].strip()


def _read_event(event: Json, arrived_at: float, transcript: Transcript) -> None:
    if event.get("error"):
        transcript.error = error_text(event)
    if isinstance(event.get("usage"), dict):
        transcript.usage = event["usage"]
    choices = event.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if not isinstance(choice, dict):
            continue
        text = _text_of(choice)
        if text:
            transcript.content_at.append(arrived_at)
            transcript.texts.append(text)
        ids = choice.get("token_ids")
        transcript.token_ids += [i for i in ids if isinstance(i, int)] if isinstance(ids, list) else ()
        if choice.get("finish_reason"):
            transcript.finish_reason, transcript.ended_at = str(choice["finish_reason"]), arrived_at


def _text_of(choice: Json) -> str:
    delta = choice.get("delta")
    delta = delta if isinstance(delta, dict) else {}
    parts = (choice.get("text"), delta.get("reasoning_content"), delta.get("reasoning"), delta.get("content"))
    return "".join(part for part in parts if isinstance(part, str))


def error_text(body: Any) -> str:
    """Return the message of an error body of the OpenAI shape, or the body itself."""
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:300]


def cached_tokens_of(usage: Json | None) -> int | None:
    """Return how many prompt tokens the server says it found cached, or None when it says nothing."""
    if usage is None:
        return None
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    places = ((details, "cached_tokens"), (usage, "prompt_cache_hit_tokens"), (usage, "cached_tokens"))
    return next((value for place, name in places if (value := count_of(place, name)) is not None), None)


def count_of(value: Any, name: str) -> int | None:
    """Return a count of an object of the wire, or None when it is not there or cannot be one."""
    count = value.get(name) if isinstance(value, dict) else None
    if not isinstance(count, int) or isinstance(count, bool):
        return None
    return count if 0 <= count <= MAX_COUNT else None
