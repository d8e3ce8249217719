"""Memory that is there before it is used: asked for in idle time, a bounded amount ahead.

Knows how far the pages have been used and which comes next. Does not know what is in them.
"""

import ctypes
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

PAGES_AT_ONCE = 32
"""How many pages are asked for in one go: less than 0.1 s of work for the demo model's, wherever memory is slow."""

QUIET_S = 0.2
"""Seconds without a use after which there is nothing to be disturbed."""

_MADV_POPULATE_WRITE = 23  # of Linux 5.14; the module `mmap` has no name for it
_LEAST_URGENT = 19


class MemoryAhead:
    """Asks for the memory of pages before they are used, in a thread that works while no page is in use.

    A machine may take 2 s to hand out a GiB that was never used (a virtual one, whose host hands it out on
    first use), and whoever writes to it first waits. Pages are used in the order of their ids, until all have
    been; asking for all of them at the start would take memory that may never be needed, and asking in the
    midst of the work takes from it half of what it saves.
    """

    def __init__(
        self,
        populate: Callable[[int, int], bool],
        num_pages: int,
        pages_ahead: int,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`populate(first, stop)` has these pages' memory handed out; False means that this cannot be done."""
        self._populate = populate
        self._num_pages = num_pages if pages_ahead else 0
        self._pages_ahead = pages_ahead
        self._now = now
        self._sleep = sleep
        self._next = 0
        self._goal = 0
        self._is_in_use = False
        self._idle_since = 0.0
        self._thread: threading.Thread | None = None

    @contextmanager
    def in_use(self, page: int) -> Iterator[None]:
        """Rest while pages up to this one are in use; go on afterwards if half of those beyond it are used up."""
        self._is_in_use = True
        try:
            yield
        finally:
            self._idle_since = self._now()
            self._is_in_use = False
            self._follow(page)

    def wait(self) -> None:
        """Return when the goal of the latest use is reached."""
        if self._thread is not None:
            self._thread.join()

    def _follow(self, page: int) -> None:
        if self._goal >= self._num_pages or self._goal - page > self._pages_ahead // 2:
            return
        self._goal = min(page + 1 + self._pages_ahead, self._num_pages)
        # A thread that ends at this moment misses the new goal; the next one, half of the pages later, starts another.
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._go_on, name="anaphora-memory", daemon=True)
            self._thread.start()

    def _go_on(self) -> None:
        _give_way()
        while self._next < self._goal:
            self._wait_for_quiet()
            stop = min(self._next + PAGES_AT_ONCE, self._goal)
            if not self._populate(self._next, stop):
                self._num_pages = 0
                return
            self._next = stop

    def _wait_for_quiet(self) -> None:
        while (rest_s := self._rest_s()) > 0:
            self._sleep(rest_s)

    def _rest_s(self) -> float:
        return QUIET_S if self._is_in_use else self._idle_since + QUIET_S - self._now()


def populate(memory: NDArray[Any]) -> bool:
    """Have the memory of a contiguous array handed out, whoever uses it meanwhile; False where that cannot be asked.

    What it holds stays as it is. Linux 5.14 and later can do it.
    """
    if sys.platform != "linux":
        return False
    begin = memory.ctypes.data & -mmap.PAGESIZE
    size = memory.ctypes.data + memory.nbytes - begin
    madvise = ctypes.CDLL(None).madvise
    return bool(madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_POPULATE_WRITE) == 0)


def _give_way() -> None:
    if sys.platform == "linux":  # elsewhere a priority is that of the whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LEAST_URGENT)
