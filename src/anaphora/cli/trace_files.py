"""Files of traces, compressed or not → Trace; which format it is, its first entry says."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from anaphora.cli.compressed import DAMAGE, damage_text, unpacked
from anaphora.errors import ConfigError, TraceError
from anaphora.sim.chats import TextReader, Tokenize, holds_text
from anaphora.sim.trace import Trace
from anaphora.sim.trace_lines import Entry, PublicReader, RecordingReader, entries

TEXT_BLOCK_SIZE, TEXT_PAGE_SIZE, TEXT_MIN_PREFILL_TOKENS = 16, 32, 2
"""What the engine takes by default on the CPU: a log of texts says nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How to read: `block_size` and `page_size` None are the trace's own; `limit` is the most requests."""

    block_size: int | None = None
    page_size: int | None = None
    limit: int | None = None


class Reader(Protocol):
    """Reads one format."""

    def add(self, where: str, entry: Entry) -> None:
        """Take in one entry; raises TraceError."""
        ...

    def trace(self, error: str | None) -> Trace:
        """Return what was read."""
        ...


def read_trace(path: Path, options: ReadOptions, make_tokenize: Callable[[], Tokenize]) -> Trace:
    """Return the trace in a file, or as much of it as could be read, with the reason in `error`.

    `make_tokenize` is called only for a trace of texts. Raises TraceError when not one request could be read,
    ConfigError when the options do not fit the trace.
    """
    reader: Reader | None = None
    num_read, error = 0, None
    try:
        with _lines(path) as lines:
            for where, entry in entries(lines):
                if options.limit is not None and num_read >= options.limit:
                    break
                reader = reader or _reader_for(where, entry, options, make_tokenize)
                reader.add(where, entry)
                num_read += 1
    except TraceError as found:
        if not num_read:
            raise TraceError(f"{path}: {found}") from found
        error = str(found)
    if reader is None:
        raise TraceError(f"{path} holds no request")
    trace = reader.trace(error)
    if not trace.requests:
        raise TraceError(f"{path} holds no request that could be played")
    return trace if options.page_size is None else with_page_size(trace, options.page_size)


def with_page_size(trace: Trace, page_size: int) -> Trace:
    """Return the trace for pages of another size."""
    if page_size % trace.block_size or not page_size:
        raise ConfigError(
            f"--page-size is {page_size}, but must be a multiple of the trace's block of {trace.block_size} tokens"
        )
    return replace(trace, page_size=page_size)


def _reader_for(
    where: str, entry: Entry, options: ReadOptions, make_tokenize: Callable[[], Tokenize]
) -> Reader:
    if "turn_record" in entry:
        return RecordingReader(options.block_size)
    if "hash_ids" in entry:
        return PublicReader(options.block_size)
    if holds_text(entry):
        block_size = options.block_size or TEXT_BLOCK_SIZE
        return TextReader(
            make_tokenize(),
            block_size=block_size,
            page_size=options.page_size or max(TEXT_PAGE_SIZE, block_size),
            min_prefill_tokens=TEXT_MIN_PREFILL_TOKENS,
        )
    raise TraceError(
        f"{where} has no hash_ids, messages, prompt or conversations: nothing says which beginnings are shared"
    )


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[str]]:
    """Open a file, compressed or not, as lines; what goes wrong while it is read is a TraceError."""
    try:
        with path.open("rb") as raw:
            yield _readable(unpacked(raw))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error


def _readable(lines: Iterable[bytes]) -> Iterator[str]:
    """Yield line by line, so that a damaged one costs none of those before it."""
    number = 1
    try:
        for number, line in enumerate(lines, 1):
            # Editors on Windows begin a file with a byte order mark.
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(
            f"line {number} is not UTF-8 text: {error.reason} at byte {error.start + 1}"
        ) from error
    except DAMAGE as error:
        raise TraceError(damage_text(error)) from error
