"""A line in the log from time to time, while there is something to say."""

import asyncio
import logging
from collections.abc import Callable

from anaphora.metrics.counters import MetricsSnapshot
from anaphora.metrics.stats_line import stats_line

INTERVAL_S = 10.0
"""As often as vLLM."""

logger = logging.getLogger(__name__)


class StatsLog:
    """Says what the engine did since it last looked; silent when that is nothing."""

    def __init__(self, read: Callable[[], MetricsSnapshot], now: Callable[[], float]) -> None:
        self._read, self._now = read, now
        self._before, self._since = read(), now()

    async def run(self, interval_s: float) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            self.look()

    def look(self) -> None:
        """Say what was done since the last look."""
        after, time = self._read(), self._now()
        line = stats_line(self._before, after, max(time - self._since, 1e-9))
        self._before, self._since = after, time
        if line is not None:
            logger.info(line)
