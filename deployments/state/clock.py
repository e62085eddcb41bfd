"""Unix time that never goes back, for counting minutes across restarts."""

import time
from collections.abc import Callable


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
