"""Clocks that nobody can set: Unix time that never goes back, and how long the machine has been up."""

import time
from collections.abc import Callable


def uptime() -> float:
    """Return seconds since some moment, those included for which the machine slept, where it can tell them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Unix seconds that advance with the monotonic clock, from the wall clock's time at the start.

    `not_before` is a time that was already reached earlier: where the wall clock is behind it, counting goes on
    from there.
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
    """Unix seconds by the wall clock, without its jumps into the future since this clock was made.

    What is destroyed because its time has come is destroyed by this clock: where the wall clock is wrong, what it has
    hidden comes back when it is put right.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = uptime) -> None:
        self._wall = wall
        self._steady = SteadyClock(wall=wall, monotonic=monotonic)

    def __call__(self) -> float:
        """Return the time, which may be behind and never is ahead."""
        return min(self._wall(), self._steady())
