"""The body of a request without its texts: where each text stands in the rendered prompt, instead of the text.

So a remembered request holds no text besides its token ids, and yet its body can be read, edited and rendered again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

_NAMES = frozenset(
    {"role", "type", "model", "id", "tool_call_id", "tool_choice", "mode", "ttl", "service_tier", "effort"}
)
"""Fields that hold a word of the API and no text of a caller; such words are kept as they are."""

Skeleton: TypeAlias = Any
"""JSON of the body, in which a `Place` or a `Lost` stands for each text."""


@dataclass(frozen=True, slots=True)
class Place:
    """A text that stands in the prompt from one character to another.

    `before` and `after` are the white space that the template trimmed. `is_escaped` says that it stands there as
    the inside of a JSON string.
    """

    start: int
    end: int
    before: str = ""
    after: str = ""
    is_escaped: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """A text that the prompt does not show; two of them can be told apart, and no more."""

    digest: str


def pack(value: Any, prompt: str) -> Skeleton:
    """Return the skeleton of a JSON value that was rendered into a prompt."""
    return _Packer(prompt).pack(value)


class _Packer:
    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._cursor = 0

    def pack(self, value: Any) -> Skeleton:
        if isinstance(value, str):
            return self._pack_text(value)
        if isinstance(value, Mapping):
            return {
                name: item if name in _NAMES and isinstance(item, str) else self.pack(item)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.pack(item) for item in value]
        return value

    def _pack_text(self, text: str) -> Skeleton:
        if not text or text.isspace():
            return text
        for is_escaped in (False, True):
            inner = text.strip()
            shown = json.dumps(inner, ensure_ascii=False)[1:-1] if is_escaped else inner
            if is_escaped and shown == inner:
                break
            place = self._find(shown)
            if place >= 0:
                start = text.find(inner)
                self._cursor = place + len(shown)
                return Place(place, self._cursor, text[:start], text[start + len(inner) :], is_escaped)
        return Lost(sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16])

    def _find(self, shown: str) -> int:
        """Return where a text stands: behind what was found last, where it usually is, else anywhere."""
        place = self._prompt.find(shown, self._cursor)
        return place if place >= 0 else self._prompt.find(shown)


def unpack(skeleton: Skeleton, prompt: str) -> Any:
    """Return the value again; a text that the prompt does not show comes back as a name for it."""
    match skeleton:
        case Place(start, end, before, after, is_escaped):
            shown = prompt[start:end]
            return before + (json.loads(f'"{shown}"', strict=False) if is_escaped else shown) + after
        case Lost(digest):
            return f"[text {digest}]"
        case dict():
            return {name: unpack(item, prompt) for name, item in skeleton.items()}
        case list():
            return [unpack(item, prompt) for item in skeleton]
    return skeleton


def size_bytes(skeleton: Skeleton) -> int:
    """Return about how much memory a skeleton takes."""
    if isinstance(skeleton, dict):
        return 200 + sum(100 + len(name) + size_bytes(item) for name, item in skeleton.items())
    if isinstance(skeleton, list):
        return 60 + sum(8 + size_bytes(item) for item in skeleton)
    return 100
