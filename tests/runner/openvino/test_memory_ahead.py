"""A recorder stands for the operating system; 32 pages are asked for at once."""

import mmap
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from anaphora.ids import PageId
from anaphora.runner.openvino.kv_store import KVPort, KVStore
from anaphora.runner.openvino.memory_ahead import QUIET_S, MemoryAhead, populate

PAGES = [PageId(page) for page in range(40)]


class Recorder:
    """Remembers which pages were asked for; cannot do it when told so."""

    def __init__(self, *, can: bool = True) -> None:
        self.calls: list[tuple[int, int]] = []
        self._can = can

    def __call__(self, first: int, stop: int) -> bool:
        self.calls.append((first, stop))
        return self._can


class Clock:
    """Stands still but while somebody sleeps; then it calls `at_sleep` first."""

    def __init__(self, at_sleep: Callable[[], object] = lambda: None) -> None:
        self.seconds = 0.0
        self.slept: list[float] = []
        self._at_sleep = at_sleep

    def sleep(self, seconds: float) -> None:
        self._at_sleep()
        self.slept.append(seconds)
        self.seconds += seconds


def make(
    populate: Callable[[int, int], bool], num_pages: int, ahead: int, clock: Clock | None = None
) -> MemoryAhead:
    clock = clock or Clock()
    return MemoryAhead(populate, num_pages, ahead, now=lambda: clock.seconds, sleep=clock.sleep)


def after_using(ahead: MemoryAhead, *pages: int) -> None:
    for page in pages:
        with ahead.in_use(page):
            pass
        ahead.wait()


def test_the_first_use_asks_for_all_pages_up_to_the_goal_in_order_and_in_parts() -> None:
    asked = Recorder()
    after_using(make(asked, 1_000, 99), 0)
    assert asked.calls == [(0, 32), (32, 64), (64, 96), (96, 100)]


def test_what_was_asked_for_once_is_not_asked_for_again() -> None:
    asked = Recorder()
    after_using(make(asked, 1_000, 64), 0, 0, 10, 5)
    assert asked.calls == [(0, 32), (32, 64), (64, 65)]


def test_it_goes_on_when_half_of_the_pages_ahead_are_used_up() -> None:
    """65 pages are ready; 32 of them lie beyond page 33."""
    asked = Recorder()
    ahead = make(asked, 1_000, 64)
    after_using(ahead, 0, 32)
    assert len(asked.calls) == 3
    after_using(ahead, 33)
    assert asked.calls[3:] == [(65, 97), (97, 98)]


def test_the_last_pages_are_asked_for_once() -> None:
    asked = Recorder()
    after_using(make(asked, 70, 64), 0, 33, 69, 69)
    assert asked.calls == [(0, 32), (32, 64), (64, 65), (65, 70)]


def test_nothing_is_asked_for_without_pages_ahead() -> None:
    asked = Recorder()
    after_using(make(asked, 1_000, 0), 0, 999)
    assert asked.calls == []


def test_where_it_cannot_be_done_it_is_tried_once() -> None:
    asked = Recorder(can=False)
    after_using(make(asked, 1_000, 64), 0, 500, 999)
    assert asked.calls == [(0, 32)]


def test_it_waits_until_nothing_was_used_for_a_while() -> None:
    asked, clock = Recorder(), Clock()
    after_using(make(asked, 1_000, 64, clock), 0)
    assert clock.slept == [QUIET_S]
    assert len(asked.calls) == 3


def test_it_rests_while_pages_are_in_use() -> None:
    """The thread wakes twice while a step is under way, and finds it ended at the third time."""
    asked, begun, sleeps, held = Recorder(), Event(), iter(range(2)), ExitStack()
    asked_in_the_step: list[tuple[int, int]] = []

    def at_sleep() -> None:
        assert begun.wait(30)
        if next(sleeps, None) is None:
            asked_in_the_step.extend(asked.calls)
            held.close()

    clock = Clock(at_sleep)
    ahead = make(asked, 1_000, 64, clock)
    with ahead.in_use(0):
        pass
    held.enter_context(ahead.in_use(0))
    begun.set()
    ahead.wait()
    assert asked_in_the_step == []
    assert len(clock.slept) >= 3
    assert len(asked.calls) == 3


def resident_bytes() -> int:
    """How much of this process is in memory."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked")
def test_populated_memory_is_there_and_holds_what_it_held() -> None:
    memory = np.zeros(64 * 1024**2, np.uint8)
    memory[5] = 7
    before = resident_bytes()
    if not populate(memory):
        pytest.skip("this kernel is older than 5.14")
    assert resident_bytes() - before > 32 * 1024**2
    assert memory[5] == 7
    assert int(memory.sum()) == 7


@pytest.mark.parametrize("shape", [(1, 4, 2), (2, 4, 8192)])
def test_a_store_in_use_keeps_what_its_pages_hold(shape: tuple[int, ...]) -> None:
    store = KVStore([KVPort("key_cache.0", "bf16", shape)], 40, ahead_bytes=1024**2)
    before = [store.read_page(page) for page in PAGES]
    store.write_page(PAGES[3], b"\x01" * store.bytes_per_page)
    with store.in_use(PAGES[0]):
        pass
    store._ahead.wait()
    assert [store.read_page(page) for page in PAGES[:3]] == before[:3]
    assert store.read_page(PAGES[3]) == b"\x01" * store.bytes_per_page
