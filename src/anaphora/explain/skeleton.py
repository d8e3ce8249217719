"""The body of a request without its texts: where each text stands in the rendered prompt, instead of the text.

So a remembered request holds no text besides its token ids, and yet its body can be read, edited and rendered again.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from anaphora.nesting import is_deeper, parse_json

_WORDS = frozenset(
    ("system", "developer", "user", "assistant", "tool", "function", "text", "refusal", "input_text")
    + ("output_text", "object", "string", "number", "integer", "boolean", "array", "null", "json_object")
    + ("json_schema", "auto", "none", "required", "ephemeral", "explicit", "implicit", "default", "5m", "1h")
    + ("low", "medium", "high")
)
"""Words of the API, kept as they are: they say nothing of a caller."""

_TAGS = re.compile(r"(\s*</?think(?:ing)?>\s*)")
"""Where templates cut what an assistant thought off."""

_MIN_END_CHARS = 8
"""A shorter beginning or end of a text, found in a prompt, may be anybody's."""

_MAX_SEARCHED_CHARS = 200_000_000
"""How much of prompts is searched for the texts of one body at most; texts not found by then count as not shown."""

_MAX_DEPTH = 100
"""A body that is nested more deeply is not remembered: comparing it would take more of the stack than there is."""

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
    """A text that the prompt does not show, but perhaps its beginning or its end.

    `middle` is the rest: names of what is not shown, by which two of them can be told apart, and tags and white space
    as they are, since templates cut there.
    """

    digest: str
    head: Place | None = None
    middle: tuple[str, ...] = ()
    tail: Place | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """A text that is JSON, of which the prompt shows the values written otherwise; `style` writes them as they were."""

    style: int
    value: Skeleton


_STYLES: tuple[dict[str, Any], ...] = (
    {"ensure_ascii": False},
    {"ensure_ascii": False, "separators": (",", ":")},
    {"ensure_ascii": True},
    {"ensure_ascii": True, "separators": (",", ":")},
    {"ensure_ascii": False, "indent": 2},
    {"ensure_ascii": True, "indent": 2},
)
"""How JSON is usually written."""


def pack(value: Any, prompt: str) -> Skeleton:
    """Return the skeleton of a JSON value that was rendered into a prompt; None if it is nested too deeply."""
    return None if is_deeper(value, _MAX_DEPTH) else _Packer(prompt).pack(value)


class _Packer:
    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._cursor = 0
        self._num_chars_left = _MAX_SEARCHED_CHARS

    def pack(self, value: Any, depth: int = 0) -> Skeleton:
        """Return the skeleton of a value that stands so many levels below the body."""
        if isinstance(value, str):
            return self._pack_text(value, depth)
        if isinstance(value, Mapping):
            return {name: self.pack(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.pack(item, depth + 1) for item in value]
        return value

    def _pack_text(self, text: str, depth: int) -> Skeleton:
        if not text or text.isspace() or text in _WORDS:
            return text
        inner = text.strip()
        start = text.find(inner)
        for is_escaped in (False, True):
            shown = json.dumps(inner, ensure_ascii=False)[1:-1] if is_escaped else inner
            if is_escaped and shown == inner:
                break
            place = self._find(shown)
            if place >= 0:
                self._cursor = place + len(shown)
                return Place(place, self._cursor, text[:start], text[start + len(inner) :], is_escaped)
        return self._pack_json(inner, depth) if inner == text and inner[0] == "{" else self._pack_ends(text)

    def _pack_json(self, text: str, depth: int) -> Skeleton:
        """Pack the value of a JSON text: JSON may stand in JSON, but never deeper than a body may be nested."""
        try:
            value = parse_json(text)
            style = next(i for i, style in enumerate(_STYLES) if json.dumps(value, **style) == text)
        except (ValueError, StopIteration):
            return self._pack_ends(text)
        if is_deeper(value, max(0, _MAX_DEPTH - depth)):
            return self._pack_ends(text)
        return Written(style, self.pack(value, depth))

    def _pack_ends(self, text: str) -> Lost:
        """Keep the longest end, and then the longest beginning, that the prompt shows of a text."""
        num_tail = self._longest(len(text), lambda length: text[len(text) - length :])
        tail = self._place(text[len(text) - num_tail :])
        num_head = self._longest(len(text) - num_tail, lambda length: text[:length])
        middle = text[num_head : len(text) - num_tail]
        return Lost(digest_of(text), self._place(text[:num_head]), _names(middle), tail)

    def _longest(self, most: int, piece: Callable[[int], str]) -> int:
        """Return the greatest length of a piece that is shown: what is shown shows all that is shorter."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self._find(piece(middle)) >= 0:
                low = middle
            elif middle <= _MIN_END_CHARS:
                return 0
            else:
                high = middle - 1
        return low if low >= _MIN_END_CHARS else 0

    def _place(self, shown: str) -> Place | None:
        start = self._find(shown) if shown else -1
        return Place(start, start + len(shown)) if start >= 0 else None

    def _find(self, shown: str) -> int:
        """Return where a text stands: behind what was found last, where it usually is, else anywhere."""
        if self._num_chars_left <= 0 or len(shown) > len(self._prompt):
            return -1
        place = self._prompt.find(shown, self._cursor)
        if place < 0:
            self._num_chars_left -= len(self._prompt)
            place = self._prompt.find(shown)
        return place


def _names(text: str) -> tuple[str, ...]:
    pieces = _TAGS.split(text)
    return tuple(
        piece if not piece or piece.isspace() or _TAGS.fullmatch(piece) else f"[text {digest_of(piece)}]"
        for piece in pieces
    )


def digest_of(text: str) -> str:
    """Return the name of a text, in letters that are no hexadecimal digits."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).digest()
    return "".join(chr(ord("g") + (byte & 15)) for byte in digest[:20])


class Known:
    """What is known of texts by their names: those that some prompt shows, and of the others the same part for all."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._guessed: dict[str, str] = {}

    def take(self, skeleton: Skeleton, prompt: str) -> None:
        """Take in the texts of a skeleton."""
        match skeleton:
            case Place():
                text = _shown(skeleton, prompt)
                self._shown[digest_of(text)] = text
            case Lost(digest):
                self._guessed.setdefault(digest, _guess(skeleton, prompt))
            case Written(_, value):
                self.take(value, prompt)
            case dict() | list():
                for item in skeleton.values() if isinstance(skeleton, dict) else skeleton:
                    self.take(item, prompt)

    def get(self, digest: str) -> str | None:
        """Return the text of a name, or None."""
        return self._shown.get(digest) or self._guessed.get(digest)


NOTHING = Known()


def unpack(skeleton: Skeleton, prompt: str, known: Known = NOTHING) -> Any:
    """Return the value again; a text that the prompt does not show comes from `known`, or is a name for it."""
    match skeleton:
        case Place():
            return _shown(skeleton, prompt)
        case Written(style, value):
            return json.dumps(unpack(value, prompt, known), **_STYLES[style])
        case Lost(digest):
            return known.get(digest) or _guess(skeleton, prompt)
        case dict():
            return {name: unpack(item, prompt, known) for name, item in skeleton.items()}
        case list():
            return [unpack(item, prompt, known) for item in skeleton]
    return skeleton


def _guess(lost: Lost, prompt: str) -> str:
    start, end = (_shown(place, prompt) if place else "" for place in (lost.head, lost.tail))
    return f"{start}{''.join(lost.middle)}{end}"


def _shown(place: Place, prompt: str) -> str:
    shown = prompt[place.start : place.end]
    return (
        place.before + (json.loads(f'"{shown}"', strict=False) if place.is_escaped else shown) + place.after
    )


def size_bytes(skeleton: Skeleton) -> int:
    """Return about how much memory a skeleton takes."""
    if isinstance(skeleton, dict):
        return 200 + sum(100 + len(name) + size_bytes(item) for name, item in skeleton.items())
    if isinstance(skeleton, list):
        return 60 + sum(8 + size_bytes(item) for item in skeleton)
    if isinstance(skeleton, Written):
        return 100 + size_bytes(skeleton.value)
    return 500 + 100 * len(skeleton.middle) if isinstance(skeleton, Lost) else 100
