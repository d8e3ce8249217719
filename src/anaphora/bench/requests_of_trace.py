"""Reads a trace: one JSON object a line, with arrival, lengths and the ids of the prompt's blocks.

The form is that of the public Mooncake traces; a line that is malformed is named with its number.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from anaphora.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """When a request came, how long it was, and which blocks its prompt was made of."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]


def read_trace(path: Path, block_size: int, limit: int) -> list[TracedRequest]:
    """Return the first requests of a file (plain or .gz), in order of arrival; ConfigError names a wrong line."""
    try:
        with _open(path) as lines:
            found = [_request(path, number, line, block_size) for number, line in _head(lines, limit)]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not found:
        raise ConfigError(f"{path} holds no request")
    return sorted(found, key=lambda request: request.arrival_s)


def _open(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _head(lines: IO[str], limit: int) -> Iterator[tuple[int, str]]:
    taken = 0
    for number, line in enumerate(lines, start=1):
        if taken == limit:
            return
        if line.strip():
            taken += 1
            yield number, line


def _request(path: Path, number: int, line: str, block_size: int) -> TracedRequest:
    where = f"{path}, line {number}"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{where} holds no JSON object, but must hold a request")
    timestamp = value.get("timestamp")
    if not isinstance(timestamp, int | float) or isinstance(timestamp, bool) or timestamp < 0:
        raise ConfigError(f"{where}: timestamp is {timestamp!r}, but must be milliseconds from the beginning")
    ids = value.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(block, int) for block in ids):
        raise ConfigError(f"{where}: hash_ids is {ids!r:.60}, but must be a list of whole numbers")
    lengths = [_length(where, value, name) for name in ("input_length", "output_length")]
    _check_blocks(where, lengths[0], ids, block_size)
    return TracedRequest(timestamp / 1000, lengths[0], lengths[1], tuple(ids))


def _length(where: str, value: dict[str, Any], name: str) -> int:
    length = value.get(name)
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise ConfigError(f"{where}: {name} is {length!r:.60}, but must be a whole number of at least 1")
    return length


def _check_blocks(where: str, length: int, ids: Sequence[int], block_size: int) -> None:
    """The last block may be partly filled, and a writer may have left it out."""
    if len(ids) not in {length // block_size, -(-length // block_size)}:
        raise ConfigError(
            f"{where}: {len(ids)} hash_ids do not fit {length:,} tokens in blocks of {block_size}; "
            "give the trace's own block size with --trace-block-size"
        )
