"""A log on disk, one JSON object a line → its requests, and what is wrong with the lines that hold none."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.cli.compressed import is_compressed
from anaphora.errors import ConfigError, InvalidRequestError, RequestError
from anaphora.explain.log_entries import LogEntry, read_entry
from anaphora.lint.image_rules import with_stand_ins
from anaphora.lint.log import LoggedRequest
from anaphora.nesting import parse_json
from anaphora.server.prompt_records import BodyRenderer


class LineError(NamedTuple):
    """A line that could not be processed, and why."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """The lines of a log as they are, its requests, and its errors."""

    lines: Sequence[bytes]
    requests: Sequence[LoggedRequest]
    errors: Sequence[LineError]


def check_log(path: Path) -> None:
    """Raise ConfigError for what is no file of lines, before anything is fetched to read it with."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give a file with one request a line")
    if not path.is_file():
        raise ConfigError(f"{path} cannot be read: there is no such file")
    try:
        with path.open("rb") as file:
            is_packed = is_compressed(file)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if is_packed:
        raise ConfigError(f"{path} is compressed; unpack it first, as with `gunzip --keep`")


def read_log(path: Path, renderer: BodyRenderer, tick: Callable[[str, int, int], None]) -> LogFile:
    """Read and render a log; raises ConfigError when there is no such file."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    entries: list[tuple[int, LogEntry]] = []
    errors: list[LineError] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found = _entry(line)
            if isinstance(found, str):
                errors.append(LineError(number, found))
            else:
                entries.append((number, found))
    requests = []
    default = next((str(e.body["model"]) for _, e in reversed(entries) if e.body.get("model")), None)
    for count, (number, entry) in enumerate(entries):
        tick("rendering prompts", count, len(entries))
        try:
            body = with_stand_ins(entry.body)
            record = renderer.record(entry.request_id or f"line {number}", body, default_model=default)
        except RequestError as error:
            errors.append(LineError(number, str(error)))
        else:
            requests.append(LoggedRequest(number, entry, record))
    return LogFile(lines, requests, sorted(errors))


def _entry(line: bytes) -> LogEntry | str:
    try:
        return read_entry(parse_json(line))
    except InvalidRequestError as error:
        return str(error)
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start:,}"
    except ValueError as error:
        return f"not JSON that can be read: {error}"


def write_log(path: Path, log: LogFile, sources: Sequence[Mapping[str, Any]]) -> None:
    """Write a log with other bodies; a line whose body stays is written as it was. Raises ConfigError."""
    lines = list(log.lines)
    for request, source in zip(log.requests, sources, strict=True):
        if source is not request.source:
            lines[request.line - 1] = _dumped(request.entry.with_body(source))
    try:
        path.write_bytes(b"\n".join(lines))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _dumped(entry: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(entry).encode()  # half a surrogate pair is no UTF-8, but may be escaped


def show_errors(errors: Sequence[LineError], limit: int) -> Iterator[str]:
    """Give a line for each of the first errors, and one for all others."""
    for error in errors[:limit]:
        yield f"line {error.line:,}: {error.reason}"
    if len(errors) > limit:
        yield f"and {len(errors) - limit:,} more lines that could not be processed"
