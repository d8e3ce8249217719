"""Files for `anaphora cost`: logs of usage, line by line, or what a server's /metrics said; compressed or not."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from anaphora.cli.compressed import DAMAGE, damage_text, unpacked
from anaphora.cost.lines import read_line
from anaphora.cost.report import Problem
from anaphora.cost.server_metrics import ServerReading, parse_metrics
from anaphora.cost.streams import MessageStreams
from anaphora.cost.tally import Log
from anaphora.cost.usage import UsageShapeError
from anaphora.errors import ConfigError

MAX_LINE_BYTES = 64 * 2**20
"""No response is longer; what has no end of line is no log."""

MAX_BAD_LINES = 100
"""A file that begins with so many lines of which none can be read is no log."""

METRICS = re.compile(rb"# (HELP|TYPE) |(vllm|anaphora):\w+[{ ]")
OF_SEVERAL_LINES = (
    "begins a JSON text of several lines, but each line must hold an object of its own; "
    "write it so, with `jq -c .`, or with `jq -c '.[]'` if it is a list"
)


@dataclass(slots=True)
class UsageReader:
    """Reads files into one log. `provider` and `model` are for lines that do not tell.

    `metrics` are those of a file that is no log: beside logs they say only how fast the server is.
    """

    log: Log
    provider: str | None = None
    model: str | None = None
    problems: list[Problem] = field(default_factory=list)
    metrics: ServerReading | None = None
    metrics_path: Path | None = None
    num_logs: int = 0

    def read(self, path: Path) -> None:
        """Take in a file, and note what is wrong with it; what is right counts all the same."""
        streams = MessageStreams(self.provider)
        try:
            with path.open("rb") as raw:
                self._read_lines(path, unpacked(raw), streams)
        except DAMAGE as error:
            self._problem(path, None, damage_text(error))
        except OSError as error:
            self._problem(path, None, f"cannot be read: {error.strerror or error}")
        finally:
            for entry in streams.rest():
                self.log.take(entry, self.model)

    def _read_lines(self, path: Path, file: IO[bytes], streams: MessageStreams) -> None:
        num_read, num_bad = 0, 0
        for number, line in _lines(file):
            if num_read + num_bad == 0 and METRICS.match(line):
                self._read_metrics(path, line + file.read(MAX_LINE_BYTES))
                return
            self.num_logs += num_read + num_bad == 0
            reason = self._take_line(line, streams)
            if reason is None:
                num_read += 1
                continue
            num_bad += 1
            if num_bad == 1 and not num_read and line.strip() in (b"{", b"["):
                reason = OF_SEVERAL_LINES
            self._problem(path, number, reason)
            if reason is OF_SEVERAL_LINES or len(line) > MAX_LINE_BYTES:
                return
            if num_bad == MAX_BAD_LINES and not num_read:
                self._problem(
                    path, None, f"none of its first {num_bad} lines can be read; is it a log of usage?"
                )
                return
        if not num_read and not num_bad:
            self._problem(path, None, "is empty; it must hold one JSON object a line")

    def _take_line(self, line: bytes, streams: MessageStreams) -> str | None:
        """Take in a line, or return what is wrong with it."""
        if len(line) > MAX_LINE_BYTES:
            return f"is longer than {MAX_LINE_BYTES:,} bytes; it must hold one JSON object"
        try:
            for found in streams.take(read_line(line.decode("utf-8-sig"), self.provider)):
                self.log.take(found, self.model)
        except UnicodeDecodeError as error:
            return f"is not UTF-8 text: {error.reason}"
        except UsageShapeError as error:
            return str(error)
        return None

    def _read_metrics(self, path: Path, text: bytes) -> None:
        if self.metrics is not None:
            self._problem(path, None, f"is a second file of metrics, beside {self.metrics_path}; give one")
            return
        try:
            self.metrics, self.metrics_path = parse_metrics(text.decode("utf-8", "replace")), path
        except ConfigError as error:
            self._problem(path, None, str(error))

    def _problem(self, path: Path, line: int | None, reason: str) -> None:
        self.problems.append(Problem(str(path), line, reason))


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers; one that is too long is cut."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if line.strip():
            yield number, line
