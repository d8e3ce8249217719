"""The clock of the effect world."""

import time


class MonotonicClock:
    """Seconds since some fixed point in the past, never going back."""

    def now(self) -> float:
        """Return the seconds."""
        return time.monotonic()
