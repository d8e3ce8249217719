"""For clients: prompts whose bytes stay the same, so that a cache finds them again.

Knows JSON and the shapes of tools and messages; imports nothing of this package and talks to no server.
"""

import hashlib
import json
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Never, Self, SupportsIndex, TypeAlias

KeyOrder: TypeAlias = Literal["sorted", "schema"]
Message: TypeAlias = dict[str, Any]

MAX_DEPTH = 100
"""Values that are nested deeper are refused; one that holds itself is always deeper."""

_EXACT_FLOATS = 2**53
_SNIPPET_CHARS = 60

_SCHEMA_FIRST = ("type", "description", "properties", "required")
_TOOL_FIRST = ("type", "name", "description")
_NAME_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"enum", "const", "default", "examples", "example"})

# ---------------------------------------------------------------------------------------------------------------------
# Canonical: one text for one value


def canonical_json(value: Any, *, order: KeyOrder = "sorted") -> str:
    """Return the one JSON text of a value, whoever made it.

    Keys are sorted by code point, lists keep their order, separators are `,` and `:`, text is written as it is
    (only control characters are escaped, nothing is normalised), and a float that is a whole number below
    2**53 is written as that number: 1.0 and 1 are one value. With `order="schema"` the objects of a JSON schema
    begin with type, description, properties and required.
    Raises TypeError for what JSON has no form for and ValueError for NaN, infinities, half surrogates and too
    deep nesting; both name the path.
    """
    if order not in {"sorted", "schema"}:
        raise ValueError(f"order is {order!r}; it is 'sorted' or 'schema'")
    first = _SCHEMA_FIRST if order == "schema" else None
    return _written(_canonical(_plain(value, "$"), first))


def _written(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any, path: str, depth: int = 0) -> Any:
    """Copy a value into dicts, lists and scalars, or say where it is no JSON value. Keeps order and numbers."""
    if depth > MAX_DEPTH:
        raise ValueError(f"{path} is nested deeper than {MAX_DEPTH} levels, or holds itself; flatten it")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(str.__str__(value), path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(float(value), path)
    if isinstance(value, Mapping):
        return {_key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if callable(dump := getattr(value, "model_dump", None)):
        # As the SDKs of OpenAI and Anthropic send the objects that they returned.
        return _plain(dump(mode="json", exclude_unset=True), path, depth + 1)
    raise TypeError(
        f"{path} is of type {type(value).__name__}, which has no JSON form; "
        "send dicts, lists, strings, numbers, booleans or None"
    )


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"{path} has the key {key!r} of type {type(key).__name__}; keys of JSON objects are strings"
        )
    return _text(str.__str__(key), f"a key of {path}")


def _text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path} has half a surrogate pair at character {error.start}, which cannot be sent as UTF-8; "
            "decode the text where it enters"
        ) from None
    return text


def _number(number: float, path: str) -> float:
    if not math.isfinite(number):
        raise ValueError(f"{path} is {number}, which JSON cannot write; send a finite number or None")
    return number


def _canonical(plain: Any, first: Sequence[str] | None) -> Any:
    """Order the keys, and write whole numbers in one way. `first` None: no schema, so plainly sorted."""
    if isinstance(plain, dict):
        return {
            key: _canonical(plain[key], _first_below(key, first)) for key in _sorted_keys(plain, first or ())
        }
    if isinstance(plain, list):
        return [_canonical(item, first) for item in plain]
    if isinstance(plain, float) and plain.is_integer() and abs(plain) < _EXACT_FLOATS:
        return int(plain)
    return plain


def _sorted_keys(plain: Mapping[str, Any], first: Sequence[str]) -> list[str]:
    return [key for key in first if key in plain] + sorted(key for key in plain if key not in first)


def _first_below(key: str, first: Sequence[str] | None) -> Sequence[str] | None:
    """Which keys lead one level below: none in data and among names; () stands for a level of names."""
    if first is None:
        return None
    if not first:
        return _SCHEMA_FIRST
    if key in _DATA:
        return None
    return () if key in _NAME_MAPS else _SCHEMA_FIRST


# ---------------------------------------------------------------------------------------------------------------------
# Frozen: the first bytes win


class FrozenJson:
    """Remembers the first text seen for each JSON value, and gives it again for every other text of that value.

    Holds up to `max_entries` texts and `max_bytes` of them; the one that was not asked for longest goes first,
    and its value is then new again. Any number of threads may call it.
    """

    def __init__(self, max_entries: int = 4096, max_bytes: int = 16 * 2**20) -> None:
        if max_entries < 1 or max_bytes < 1:
            raise ValueError(
                f"max_entries is {max_entries} and max_bytes is {max_bytes}; both are at least 1"
            )
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._size_bytes = 0
        self._num_evicted = 0
        self._lock = threading.Lock()

    def __call__(self, value: Any) -> str:
        """Return the first text seen for a value.

        A string is a JSON *text*, such as the arguments that a model wrote, and is kept byte for byte. Anything
        else is a value, and is written compactly with its keys in their own order.
        """
        if isinstance(value, str):
            text = _text(str.__str__(value), "the JSON text")
            plain = _plain(_parsed(text), "$")
        else:
            plain = _plain(value, "$")
            text = _written(plain)
        digest = hashlib.sha256(_written(_canonical(plain, None)).encode()).digest()
        with self._lock:
            return self._first(digest, text)

    def __len__(self) -> int:
        """How many values are remembered."""
        return len(self._texts)

    @property
    def num_evicted(self) -> int:
        """How many values were forgotten to make room: more than 0 asks for a larger memory."""
        return self._num_evicted

    def _first(self, digest: bytes, text: str) -> str:
        found = self._texts.get(digest)
        if found is not None:
            self._texts.move_to_end(digest)
            return found
        size_bytes = len(text.encode())
        if size_bytes > self._max_bytes:
            raise ValueError(
                f"the text has {size_bytes:,} bytes, the limit is {self._max_bytes:,}; raise max_bytes"
            )
        self._texts[digest] = text
        self._size_bytes += size_bytes
        while len(self._texts) > self._max_entries or self._size_bytes > self._max_bytes:
            _, evicted = self._texts.popitem(last=False)
            self._size_bytes -= len(evicted.encode())
            self._num_evicted += 1
        return text


def frozen_json(max_entries: int = 4096, max_bytes: int = 16 * 2**20) -> FrozenJson:
    """Return a memory of first texts; keep one for as long as the prompts that it writes are sent."""
    return FrozenJson(max_entries, max_bytes)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object_of, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError(f"the JSON text is nested deeper than {MAX_DEPTH} levels; flatten it") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"this is no JSON text: {error.msg} at character {error.pos} of {_snippet(text, error.pos)}. "
            "A string is taken for a JSON text; to freeze a string, give json.dumps(it)"
        ) from None


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = _repeated(key for key, _ in pairs)
    if twice:
        raise ValueError(f"an object of the JSON text has the key {twice[0]!r} twice; keep one")
    return dict(pairs)


def _no_constant(name: str) -> Never:
    raise ValueError(f"the JSON text has {name}, which is no JSON number; send a finite number or null")


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


# ---------------------------------------------------------------------------------------------------------------------
# Tools


def stable_tools(tools: Iterable[Any]) -> list[dict[str, Any]]:
    """Return tools sorted by name, each with its keys in one order; the tools themselves stay as they are.

    Takes the shapes of OpenAI (`function.name`, or `name` beside `type`) and Anthropic (`name`, `input_schema`).
    A hosted tool without a name goes by its `server_label` or `type`. Lists, such as `required` and `enum`, keep
    their order, since a model may read it. Raises ValueError where two tools have one name.
    """
    named = [_named(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    if twice := _repeated(name for name, _ in named):
        words = ", ".join(map(repr, twice))
        raise ValueError(
            f"several tools are named {words}; a model calls tools by name, so give each its own"
        )
    return [tool for _, tool in sorted(named, key=lambda pair: pair[0])]


def _named(tool: Any, path: str) -> tuple[str, dict[str, Any]]:
    plain = _plain(tool, path)
    if not isinstance(plain, dict):
        raise TypeError(f"{path} is of type {type(tool).__name__}; a tool is an object with a name")
    function = plain.get("function")
    owner = function if isinstance(function, dict) else plain
    # What names a hosted tool: {"type": "mcp", "server_label": …}, {"type": "web_search"}.
    fields = ("name",) if owner is function else ("name", "server_label", "type")
    name = next((owner[field] for field in fields if field in owner), None)
    is_nameless = owner is plain and name == "function"
    if not isinstance(name, str) or not name or is_nameless:
        raise ValueError(f"{path} has no name; give it one in function.name (OpenAI) or name (Anthropic)")
    ordered = {key: _tool_field(key, plain[key]) for key in _sorted_keys(plain, _TOOL_FIRST)}
    return name, ordered


def _tool_field(key: str, plain: Any) -> Any:
    if key == "function" and isinstance(plain, dict):
        return {name: _tool_field(name, plain[name]) for name in _sorted_keys(plain, _TOOL_FIRST)}
    return _canonical(plain, _SCHEMA_FIRST if key in {"parameters", "input_schema"} else None)


# ---------------------------------------------------------------------------------------------------------------------
# A history that only grows


class HistoryChangedError(ValueError):
    """A message that was appended is not as it was.

    `index` is the message, `path` the first field that differs; `old` and `new` are snippets of it.
    """

    def __init__(self, index: int, path: str, old: str, new: str, what: str) -> None:
        super().__init__(
            f"{path} {what}: sent as {old}, now {new}. All tokens from there on would be computed again; "
            "append what is new, or begin another append_only()"
        )
        self.index, self.path, self.old, self.new = index, path, old, new


class History(list[Message]):
    """Messages in the order they were sent; a list that can be read, sent and appended to, and nothing else.

    Messages are copied when they are appended. Whoever changes one that was read from here gets a
    HistoryChangedError from the next append, the next iteration and the next `messages`, and so before it is sent.
    """

    def __init__(self, messages: Iterable[Any] = ()) -> None:
        super().__init__()
        self._texts: list[str] = []
        self.extend(messages)

    @property
    def messages(self) -> list[Message]:
        """A copy of all messages, as they were appended."""
        self.check()
        return [json.loads(text) for text in self._texts]

    def append(self, message: Any) -> None:
        """Add a message: a dict, or an object of an SDK with `model_dump`."""
        self.extend([message])

    def extend(self, messages: Iterable[Any]) -> None:
        """Add messages: all of them, or none when one is no JSON object."""
        self.check()
        start = len(self._texts)
        texts = [_written(_message(item, start + index)) for index, item in enumerate(messages)]
        self._texts += texts
        super().extend(json.loads(text) for text in texts)

    def extend_to(self, messages: Iterable[Any]) -> None:
        """Take a whole new list: what was sent must be its beginning, and the rest is appended.

        A message that has the same value in other bytes counts as the same, and stays as it was first sent.
        """
        given = [_message(item, index) for index, item in enumerate(messages)]
        self.check()
        for index, text in enumerate(self._texts):
            if index >= len(given):
                raise HistoryChangedError(
                    index, f"messages[{index}]", _snippet(text), "absent", "was sent and is missing"
                )
            _compare(json.loads(text), given[index], index)
        self.extend(given[len(self._texts) :])

    def check(self) -> None:
        """Raise HistoryChangedError for the first message that was changed where it stands."""
        for index, (text, message) in enumerate(zip(self._texts, super().__iter__(), strict=True)):
            plain = _message(message, index)
            if _written(plain) != text:
                _compare(json.loads(text), plain, index)
                raise HistoryChangedError(
                    index,
                    f"messages[{index}]",
                    _snippet(text),
                    _snippet(_written(plain)),
                    "was written otherwise",
                )

    def __iter__(self) -> Iterator[Message]:
        self.check()
        return super().__iter__()

    def __iadd__(self, messages: Iterable[Any]) -> Self:  # type: ignore[override,misc]
        self.extend(messages)
        return self

    def __add__(self, messages: Any) -> list[Any]:
        return [*self.messages, *messages]

    def copy(self) -> list[Message]:
        """Return a copy of all messages in a list of its own."""
        return self.messages

    def __reduce__(self) -> tuple[Any, ...]:
        return append_only, (self.messages,)

    # Everything else that changes a list.

    def __setitem__(self, index: Any, message: Any) -> Never:
        if isinstance(index, int) and -len(self) <= index < len(self):
            place = index % len(self)
            _compare(json.loads(self._texts[place]), _message(message, place), place)
        self._refuse(index, message)

    def __delitem__(self, index: Any) -> Never:
        self._refuse(index)

    def __imul__(self, times: SupportsIndex) -> Never:
        self._refuse(0)

    def insert(self, index: SupportsIndex, message: Any) -> Never:
        """Refuse: a message in between moves all behind it."""
        self._refuse(index, message)

    def pop(self, index: SupportsIndex = -1) -> Never:
        """Refuse: what was sent stays."""
        self._refuse(index)

    def remove(self, message: Any) -> Never:
        """Refuse: what was sent stays."""
        self._refuse(self.index(message))

    def clear(self) -> Never:
        """Refuse: what was sent stays."""
        self._refuse(0)

    def sort(self, *, key: Callable[[Message], Any] | None = None, reverse: bool = False) -> Never:
        """Refuse: what was sent keeps its place."""
        self._refuse(0)

    def reverse(self) -> Never:
        """Refuse: what was sent keeps its place."""
        self._refuse(0)

    def _refuse(self, index: Any, message: Any = None) -> Never:
        start = index.indices(len(self))[0] if isinstance(index, slice) else int(index)
        place = max(0, start + len(self) if start < 0 else start)
        old = _snippet(self._texts[place]) if place < len(self) else "absent"
        new = "moved or absent" if message is None else _snippet(repr(message))
        what = "cannot be changed in a history that only grows"
        raise HistoryChangedError(place, f"messages[{place}]", old, new, what)


def append_only(messages: Iterable[Any] = ()) -> History:
    """Return a history that only grows; it can be sent as `messages`, since it is a list of dicts."""
    return History(messages)


def _message(message: Any, index: int) -> Message:
    plain = _plain(message, f"messages[{index}]")
    if not isinstance(plain, dict):
        raise TypeError(f"messages[{index}] is of type {type(message).__name__}; a message is an object")
    return plain


def _compare(old: Message, new: Message, index: int) -> None:
    found = _difference(old, new, f"messages[{index}]")
    if found is not None:
        path, old_value, new_value = found
        raise HistoryChangedError(
            index, path, *_snippets(old_value, new_value), "was changed after it was sent"
        )


_ABSENT = object()


def _difference(old: Any, new: Any, path: str) -> tuple[str, Any, Any] | None:
    """The first place where two values differ, with both sides; the order of keys and 1.0 do not count."""
    if type(old) is not type(new) or not isinstance(old, dict | list):
        is_same = _ABSENT not in (old, new) and canonical_json(old) == canonical_json(new)
        return None if is_same else (path, old, new)
    before, after = _children(old), _children(new)
    for step in {**before, **after}:
        found = _difference(before.get(step, _ABSENT), after.get(step, _ABSENT), path + step)
        if found is not None:
            return found
    return None


def _children(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {f".{key}": item for key, item in value.items()}
    return {f"[{index}]": item for index, item in enumerate(value)}


def _snippets(old: Any, new: Any) -> tuple[str, str]:
    """Both sides around the first character that differs."""
    texts = [
        "absent" if side is _ABSENT else side if isinstance(side, str) else _written(side)
        for side in (old, new)
    ]
    first = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    shown = [
        "absent" if side is _ABSENT else _snippet(text, first)
        for side, text in zip((old, new), texts, strict=True)
    ]
    return shown[0], shown[1]


def _snippet(text: str, place: int = 0) -> str:
    start = max(0, place - 20) if len(text) > _SNIPPET_CHARS else 0
    cut = text[start : start + _SNIPPET_CHARS]
    return f"{'…' if start else ''}{cut!r}{'…' if start + len(cut) < len(text) else ''}"
