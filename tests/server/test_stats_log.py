"""A scripted engine, and a clock that is set by hand."""

import asyncio
import logging
from dataclasses import replace

import pytest

from anaphora.metrics.counters import MetricsSnapshot
from anaphora.server.stats_log import StatsLog
from tests.metrics.test_stats_line import IDLE


class Engine:
    """Ten tokens were generated at each look after the first, for as many looks as told."""

    def __init__(self, num_busy_looks: int) -> None:
        self.num_looks = 0
        self.was_seen_enough = asyncio.Event()
        self._num_busy_looks = num_busy_looks

    def read(self) -> MetricsSnapshot:
        busy = min(self.num_looks, self._num_busy_looks)
        self.num_looks += 1
        if self.num_looks == 6:
            self.was_seen_enough.set()
        return replace(IDLE, generation_tokens=10 * busy)

    def now(self) -> float:
        return 100.0 + 2.0 * self.num_looks


def test_each_look_says_what_was_done_since_the_last_and_nothing_when_that_is_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    engine = Engine(num_busy_looks=2)
    log = StatsLog(engine.read, engine.now)
    for _ in range(4):
        log.look()
    assert ["generation throughput: 5.0 tokens/s" in line for line in caplog.messages] == [True, True]


def test_it_looks_again_and_again_until_it_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine = Engine(num_busy_looks=3)

    async def watch() -> None:
        running = asyncio.ensure_future(StatsLog(engine.read, engine.now).run(0.0))
        await engine.was_seen_enough.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(watch(), 30))
    assert len(caplog.messages) == 3
