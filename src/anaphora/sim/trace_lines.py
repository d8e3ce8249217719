"""The formats of traces: one JSON object a request → TraceRequest. Reads no files, and renders no text.

| format | what a line has |
|---|---|
| Mooncake | `timestamp` in ms, `input_length`, `output_length`, `hash_ids` |
| Qwen-Bailian | the same with `timestamp` in s, and `chat_id`, `turn` … |
| a recording of our own server | that of Mooncake, and `block_size`, `engine`, `turn_record` |
"""

import math
import re
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from anaphora.config import EVICTION_POLICIES, KVLayout, SchedulerConfig
from anaphora.errors import ConfigError, TraceError
from anaphora.nesting import parse_json, parse_json_part
from anaphora.sim.trace import RecordedEngine, RecordedTurn, Trace, TraceRequest

Entry = dict[str, Any]
_NO_SIZE = 2**31
_SPACE = re.compile(r"[ \t\n\r]*")
_MOST = 2**31
"""More than any sequence has tokens, and than any recording has requests."""
_MOST_PAGES = 2**24
_KINDS = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    dict: "an object",
    bool: "true or false",
}


def entries(lines: Iterable[str]) -> Iterator[tuple[str, Entry]]:
    """Yield each object of a file with the name of its place: one object a line, or one list of them all.

    Raises TraceError at the first that is none.
    """
    rest = iter(enumerate(lines, 1))
    is_first = True
    for number, line in rest:
        if not line.strip():
            continue
        if is_first and line.lstrip().startswith("["):
            yield from _listed(line + "".join(more for _, more in rest))
            return
        is_first = False
        yield f"line {number}", _object(f"line {number}", _parsed(f"line {number}", line))


def _listed(text: str) -> Iterator[tuple[str, Entry]]:
    """Yield what stands in a list one by one, so that a list which is damaged further on is read until there."""
    position, number = _skip_space(text, text.index("[") + 1), 0
    is_open = not text.startswith("]", position)
    while is_open:
        number += 1
        where = f"entry {number}"
        value, position = _parsed_part(where, text, position)
        yield where, _object(where, value)
        position = _skip_space(text, position)
        is_open = text.startswith(",", position)
        if is_open:
            position = _skip_space(text, position + 1)
        elif not text.startswith("]", position):
            raise TraceError(f"behind {where} stands neither a comma nor the end of the list")
    if _skip_space(text, position + 1) < len(text):
        raise TraceError("behind the end of the list stands something else")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None, "matches no character at all"
    return match.end()


def _parsed_part(where: str, text: str, start: int) -> tuple[Any, int]:
    try:
        return parse_json_part(text, start)
    except ValueError as error:
        raise TraceError(f"{where} is not JSON that can be read: {error}") from error


def _parsed(where: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise TraceError(f"{where} is not JSON that can be read: {error}") from error


def _object(where: str, value: Any) -> Entry:
    if not isinstance(value, dict):
        raise TraceError(f"{where} is {value!r:.40}, but must be a JSON object")
    return value


def field_of(where: str, entry: Entry, name: str, kind: type, least: int | None = 0) -> Any:
    """Return a field that must be there, of its kind and at least `least`; raises TraceError."""
    if name not in entry:
        raise TraceError(f"{where} has no {name}")
    value = entry[name]
    is_right = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not is_right or (isinstance(value, bool) and kind is not bool):
        raise TraceError(f"{where}: {name} is {value!r:.40}, but must be {_KINDS[kind]}")
    if kind is float:
        return finite(where, name, value, least)
    if kind is int and least is not None and value < least:
        raise TraceError(f"{where}: {name} is {value!r:.40}, but must be at least {least}")
    if kind is int and abs(value) > _MOST:
        raise TraceError(f"{where}: {name} is {value!r:.40}, but must be at most {_MOST:,}")
    return value


def finite(where: str, name: str, value: float, least: float | None = None) -> float:
    """Return a number as a float; raises TraceError when it is none that is finite and at least `least`."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TraceError(f"{where}: {name} is {value!r:.40}, but must be finite")
    if least is not None and number < least:
        raise TraceError(f"{where}: {name} is {value}, but must be at least {least}")
    return number


class BlockNumbers:
    """Small numbers for what files call blocks, in order of appearance; what comes before a block must never change."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._parents: list[int] = []

    def __call__(self, where: str, names: list[Any], namespace: Hashable = None) -> tuple[int, ...]:
        """Return the numbers of one sequence of blocks; raises TraceError for one that cannot be a chain."""
        parent, numbers = -1, []
        for name in names:
            if not isinstance(name, int | str) or isinstance(name, bool):
                raise TraceError(f"{where}: the block id {name!r:.40} is neither a whole number nor a text")
            key: Hashable = name if namespace is None else (namespace, name)
            number = self._numbers.setdefault(key, len(self._parents))
            if number == len(self._parents):
                self._parents.append(parent)
            elif self._parents[number] != parent:
                raise TraceError(
                    f"{where}: block id {name!r} does not follow what it followed before; "
                    "an id must stand for its block and all that precedes it"
                )
            numbers.append(number)
            parent = number
        return tuple(numbers)


class BlockSizes:
    """Which numbers of tokens a block may have, if every prompt has `ceil(length / size)` of them."""

    def __init__(self, given: int | None) -> None:
        self._given = given
        self._low, self._high = 1, _NO_SIZE

    def narrow(self, where: str, num_tokens: int, num_blocks: int) -> None:
        """Take one prompt in; raises TraceError when no size is left."""
        if not num_blocks:
            raise TraceError(f"{where} has no block for {num_tokens:,} tokens")
        low = max(self._low, -(-num_tokens // num_blocks))
        high = self._high if num_blocks == 1 else min(self._high, -(-num_tokens // (num_blocks - 1)) - 1)
        told = f"{where} has {num_blocks:,} blocks for {num_tokens:,} tokens"
        if self._given is not None:
            if not low <= self._given <= high:
                expected = -(-num_tokens // self._given)
                raise TraceError(
                    f"{told}, but with --block-size {self._given} it must have {expected:,}; "
                    "is another --block-size right?"
                )
        elif low > high:
            raise TraceError(f"{told}, but the lines before say {self._low} to {self._high} tokens a block")
        self._low, self._high = low, high

    def choose(self) -> int:
        """Return the size: the one given, or the only power of two that is left; ConfigError when it is open."""
        if self._given is not None:
            return self._given
        powers = [1 << power for power in range(31) if self._low <= 1 << power <= self._high]
        if len(powers) == 1:
            return powers[0]
        upper = "" if self._high == _NO_SIZE else f" to {self._high:,}"
        raise ConfigError(
            f"the trace does not say how many tokens a block has; {self._low:,}{upper} fit all lines. "
            "Give --block-size, such as 512 for Mooncake or 16 for Qwen-Bailian"
        )


class PublicReader:
    """Reads the Mooncake form and the Qwen-Bailian form."""

    def __init__(self, block_size: int | None) -> None:
        self._numbers = BlockNumbers()
        self._sizes = BlockSizes(block_size)
        self._is_given = block_size is not None
        self._requests: list[TraceRequest] = []
        self._is_bailian = False

    def add(self, where: str, entry: Entry) -> None:
        """Take in one request; raises TraceError."""
        self._is_bailian = self._is_bailian or "chat_id" in entry
        num_tokens = field_of(where, entry, "input_length", int, 1)
        num_outputs = field_of(where, entry, "output_length", int)
        names = field_of(where, entry, "hash_ids", list)
        timestamp = field_of(where, entry, "timestamp", float, None) if "timestamp" in entry else None
        self._sizes.narrow(where, num_tokens, len(names))
        namespace = entry.get("namespace")
        if not isinstance(namespace, str | int | None):
            raise TraceError(f"{where}: namespace is {namespace!r:.40}, but must be a text or a whole number")
        block_ids = self._numbers(where, names, namespace)
        arrival_s = None if timestamp is None else timestamp / (1 if self._is_bailian else 1000)
        self._requests.append(TraceRequest(num_tokens, num_outputs, block_ids, arrival_s))

    def trace(self, error: str | None) -> Trace:
        """Return what was read."""
        size = self._sizes.choose()
        return Trace(
            format="Qwen-Bailian" if self._is_bailian else "Mooncake",
            block_size=size,
            requests=by_arrival(self._requests),
            counts_tail=True,
            page_size=size,
            error=error,
            notes=()
            if self._is_given
            else (f"{size} tokens a block: the only power of two that fits every line",),
        )


class RecordingReader:
    """Reads what `anaphora serve --record` wrote."""

    def __init__(self, block_size: int | None) -> None:
        self._given = block_size
        self._numbers = BlockNumbers()
        self._requests: list[TraceRequest] = []
        self._places: dict[int, str] = {}
        self._engine: RecordedEngine | None = None

    def add(self, where: str, entry: Entry) -> None:
        """Take in one request; raises TraceError."""
        engine = read_engine(where, field_of(where, entry, "engine", dict))
        if self._engine not in {None, engine}:
            raise TraceError(
                f"{where} was recorded with other settings than the lines before; split the file"
            )
        if self._given not in {None, engine.layout.block_size}:
            raise TraceError(
                f"{where} was recorded in blocks of {engine.layout.block_size}, but --block-size is {self._given}; "
                "leave it out"
            )
        self._engine = engine
        names = field_of(where, entry, "hash_ids", list)
        num_tokens = field_of(where, entry, "input_length", int, 1)
        if len(names) != num_tokens // engine.layout.block_size:
            raise TraceError(f"{where} has {len(names)} block ids for {num_tokens:,} tokens")
        num_outputs = field_of(where, entry, "output_length", int)
        output_names = field_of(where, entry, "output_hash_ids", list)
        # Whoever left in the middle may be a block off.
        if (
            abs(len(names) + len(output_names) - _num_whole_blocks(num_tokens, num_outputs, engine.layout))
            > 1
        ):
            raise TraceError(
                f"{where} has {len(output_names)} block ids for {num_outputs:,} output tokens behind "
                f"{num_tokens:,} of a prompt"
            )
        numbers = self._numbers(where, names + output_names)
        turn = read_turn(where, entry, ending=len(self._requests))
        if turn.cached_tokens > num_tokens:
            raise TraceError(
                f"{where}: cached_tokens is {turn.cached_tokens:,}, but the prompt has {num_tokens:,}"
            )
        if earlier := self._places.get(turn.number):
            raise TraceError(
                f"{where} has the number {turn.number} of {earlier}; a recording is of one run of a server, "
                "so play each alone"
            )
        self._places[turn.number] = where
        self._requests.append(
            TraceRequest(
                num_prompt_tokens=num_tokens,
                num_output_tokens=num_outputs,
                block_ids=numbers[: len(names)],
                arrival_s=field_of(where, entry, "timestamp", float, None) / 1000,
                output_block_ids=numbers[len(names) :],
                recorded=turn,
            )
        )

    def trace(self, error: str | None) -> Trace:
        """Return what was read, in order of arrival."""
        engine = self._engine
        assert engine is not None, "nothing was read"
        ordered = sorted(self._requests, key=lambda request: _turn(request).number)
        forks = tuple(request for request in ordered if _turn(request).fork_of is not None)
        notes = []
        if engine.partial_block_reuse:
            notes.append(
                "the server reused parts of blocks (--partial-block-reuse), which block ids cannot show: "
                "only whole blocks are counted"
            )
        if engine.max_pinned_pages:
            notes.append("pinned prompts, if there were any, are not pinned again")
        if forks:
            notes.append(f"{len(forks):,} further sequences of n > 1 are counted with the first of each")
        return Trace(
            format="recording",
            block_size=engine.layout.block_size,
            requests=tuple(request for request in ordered if _turn(request).fork_of is None),
            forks=forks,
            counts_tail=False,
            page_size=engine.layout.page_size,
            min_prefill_tokens=engine.layout.min_prefill_tokens,
            can_copy_part=engine.layout.can_copy_part,
            engine=engine,
            error=error,
            notes=tuple(notes),
        )


def _num_whole_blocks(num_prompt_tokens: int, num_outputs: int, layout: KVLayout) -> int:
    """Return how many blocks are whole in the end: the last output token is never computed."""
    return (num_prompt_tokens + max(0, num_outputs - 1)) // layout.block_size


def _turn(request: TraceRequest) -> RecordedTurn:
    assert request.recorded is not None, "not of a recording"
    return request.recorded


def by_arrival(requests: list[TraceRequest]) -> tuple[TraceRequest, ...]:
    """Return the requests in order of arrival, or as they are when some do not say when they came."""
    if any(request.arrival_s is None for request in requests):
        return tuple(requests)
    return tuple(sorted(requests, key=lambda request: request.arrival_s or 0.0))


_LAYOUT = ("block_size", "page_size", "num_pages", "min_prefill_tokens", "can_copy_part")


def engine_entry(engine: RecordedEngine) -> Entry:
    """Return the object that stands for a server's settings in a recording."""
    layout, scheduler = engine.layout, engine.scheduler
    return {
        **{name: getattr(layout, name) for name in _LAYOUT},
        "max_model_len": engine.max_model_len,
        "eviction_policy": engine.eviction_policy,
        "exact_reuse": engine.exact_reuse,
        "partial_block_reuse": engine.partial_block_reuse,
        "max_pinned_pages": engine.max_pinned_pages,
        "scheduler": {field.name: getattr(scheduler, field.name) for field in fields(scheduler)},
    }


def read_engine(where: str, entry: Entry) -> RecordedEngine:
    """Return the settings that an object of a recording stands for; raises TraceError."""
    policy = entry.get("eviction_policy")
    if policy not in EVICTION_POLICIES:
        raise TraceError(f"{where}: eviction_policy is {policy!r:.40}, which this version does not know")
    scheduler = field_of(where, entry, "scheduler", dict)
    if set(scheduler) != {field.name for field in fields(SchedulerConfig)}:
        raise TraceError(f"{where} was recorded by another version: its scheduler has other settings")
    num_pages = field_of(where, entry, "num_pages", int, 2)
    if num_pages > _MOST_PAGES:
        raise TraceError(f"{where}: num_pages is {num_pages:,}, but must be at most {_MOST_PAGES:,}")
    try:
        return RecordedEngine(
            layout=KVLayout(
                field_of(where, entry, "block_size", int, 1),
                field_of(where, entry, "page_size", int, 1),
                num_pages,
                field_of(where, entry, "min_prefill_tokens", int, 1),
                field_of(where, entry, "can_copy_part", bool),
            ),
            scheduler=SchedulerConfig(
                **{
                    f.name: field_of(where, scheduler, f.name, type(f.default))
                    for f in fields(SchedulerConfig)
                }
            ),
            max_model_len=field_of(where, entry, "max_model_len", int, 1),
            eviction_policy=policy,
            exact_reuse=field_of(where, entry, "exact_reuse", bool),
            partial_block_reuse=field_of(where, entry, "partial_block_reuse", int),
            max_pinned_pages=field_of(where, entry, "max_pinned_pages", int),
        )
    except ConfigError as error:
        raise TraceError(f"{where}: {error}") from error


def turn_entry(turn: RecordedTurn) -> Entry:
    """Return the fields of a recording's line that say how a request went."""
    return {
        "number": turn.number,
        "first_step": turn.first_step,
        "last_step": turn.last_step,
        "ended_between_steps": turn.ended_between_steps,
        "num_preemptions": turn.num_preemptions,
        "priority": turn.priority,
        "fork_of": turn.fork_of,
        "skip_reading_cache": turn.skip_reading_cache,
    }


def read_turn(where: str, entry: Entry, ending: int) -> RecordedTurn:
    """Return how a request went, from its line; raises TraceError."""
    turn = field_of(where, entry, "turn_record", dict)
    return RecordedTurn(
        number=field_of(where, turn, "number", int),
        cached_tokens=field_of(where, entry, "cached_tokens", int),
        first_step=field_of(where, turn, "first_step", int),
        last_step=field_of(where, turn, "last_step", int),
        ended_between_steps=field_of(where, turn, "ended_between_steps", bool),
        ending=ending,
        num_preemptions=field_of(where, turn, "num_preemptions", int),
        priority=field_of(where, turn, "priority", int, None),
        fork_of=None if turn.get("fork_of") is None else field_of(where, turn, "fork_of", int),
        skip_reading_cache=field_of(where, turn, "skip_reading_cache", bool),
    )
