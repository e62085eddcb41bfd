"""Clocks that do not follow every change of the wall clock: time that never goes back, and the machine's uptime."""

import time
from collections.abc import Callable


def uptime() -> float:
    """Return seconds since a fixed moment, with the time that the machine slept where the system counts it."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Unix seconds that advance with the monotonic clock, from the wall clock's time at the start.

    It starts at `not_before`, a time that was reached earlier, if the wall clock is behind that.
    """

    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._offset = max(wall(), not_before) - monotonic()

    def __call__(self) -> float:
        """Return the time."""
        return self._monotonic() + self._offset


class PastClock:
    """Wall-clock Unix seconds, without forward jumps since this clock was created.

    Expired content is deleted by this clock. While the wall clock is wrong, content may be hidden as expired; it comes
    back when the wall clock is corrected.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = uptime) -> None:
        self._wall = wall
        self._steady = SteadyClock(wall=wall, monotonic=monotonic)

    def __call__(self) -> float:
        """Return the time, which is never ahead of the right time."""
        return min(self._wall(), self._steady())
