"""A file that grows by one line for each thing put in, written by a thread of its own.

Whoever puts things in is never held up: neither by making the line nor by the disk.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from anaphora.errors import ConfigError

logger = logging.getLogger(__name__)

Item = TypeVar("Item")

MOST_WAITING = 10_000


class LineFile(Generic[Item]):
    """A new file that only its owner may read. `line_of` makes the line of an item, in the thread that writes.

    Items that come while `MOST_WAITING` others wait are dropped, and so is everything after a failure to write; both
    are said in the log. Raises ConfigError when the file is there already or cannot be made.
    """

    def __init__(self, path: Path, line_of: Callable[[Item], str]) -> None:
        self.path = path
        self._line_of = line_of
        self._items: queue.Queue[Item | None] = queue.Queue(MOST_WAITING)
        self._num_dropped = 0
        try:
            # Neither an older recording nor what a link points to is written over.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError as error:
            raise ConfigError(f"{path} exists already; choose another file, or move it away") from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be made: {error.strerror}") from error
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        self._thread = threading.Thread(target=self._write_all, name="anaphora-lines", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Have an item written soon; returns at once."""
        try:
            self._items.put_nowait(item)
        except queue.Full:
            self._num_dropped += 1

    def close(self) -> None:
        """Write what waits, and close the file."""
        if self._thread.is_alive():
            self._items.put(None)
            self._thread.join()
        if self._num_dropped:
            logger.warning("%s: %d lines are missing; the disk was too slow", self.path, self._num_dropped)

    def _write_all(self) -> None:
        try:
            with self._file as file:
                while (item := self._items.get()) is not None:
                    file.write(self._line_of(item))
                    if self._items.empty():
                        file.flush()
        except OSError as error:
            logger.warning("%s cannot be written and ends here: %s", self.path, error.strerror)
            while (
                self._items.get() is not None
            ):  # nobody who puts things in must find the queue full for ever
                pass
