"""A recorder stands for the operating system; 32 pages are asked for at once."""

import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from anaphora.ids import PageId
from anaphora.runner.openvino.kv_store import KVPort, KVStore
from anaphora.runner.openvino.memory_ahead import PAGES_AT_ONCE, MemoryAhead, populate

PAGES = [PageId(page) for page in range(40)]


class Recorder:
    """Remembers which pages were asked for; cannot do it when told so."""

    def __init__(self, *, can: bool = True) -> None:
        self.calls: list[tuple[int, int]] = []
        self._can = can

    def __call__(self, first: int, stop: int) -> bool:
        self.calls.append((first, stop))
        return self._can


def after_using(ahead: MemoryAhead, *pages: int) -> None:
    for page in pages:
        ahead.use(page)
        ahead.wait()


def test_the_first_use_asks_for_all_pages_up_to_the_goal_in_order_and_in_parts() -> None:
    asked = Recorder()
    after_using(MemoryAhead(asked, 1_000, 99), 0)
    assert asked.calls == [(0, 32), (32, 64), (64, 96), (96, 100)]


def test_what_was_asked_for_once_is_not_asked_for_again() -> None:
    asked = Recorder()
    after_using(MemoryAhead(asked, 1_000, 64), 0, 0, 10, 5)
    assert asked.calls == [(0, 32), (32, 64), (64, 65)]


def test_the_goal_is_followed_when_it_has_risen_by_one_part() -> None:
    asked = Recorder()
    ahead = MemoryAhead(asked, 1_000, 64)
    after_using(ahead, 0, PAGES_AT_ONCE - 1)
    assert len(asked.calls) == 3
    after_using(ahead, PAGES_AT_ONCE)
    assert asked.calls[3:] == [(65, 97)]


def test_the_last_pages_are_asked_for_though_they_are_less_than_a_part() -> None:
    asked = Recorder()
    after_using(MemoryAhead(asked, 70, 64), 0, 6, 69)
    assert asked.calls == [(0, 32), (32, 64), (64, 65), (65, 70)]


def test_nothing_is_asked_for_without_pages_ahead() -> None:
    asked = Recorder()
    after_using(MemoryAhead(asked, 1_000, 0), 0, 999)
    assert asked.calls == []


def test_where_it_cannot_be_done_it_is_tried_once() -> None:
    asked = Recorder(can=False)
    after_using(MemoryAhead(asked, 1_000, 64), 0, 500, 999)
    assert asked.calls == [(0, 32)]


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
    store.use(PAGES[0])
    store._ahead.wait()
    assert [store.read_page(page) for page in PAGES[:3]] == before[:3]
    assert store.read_page(PAGES[3]) == b"\x01" * store.bytes_per_page
