"""Whose request is prepared next: interactive ones at once, those of batches one by one and between them.

Where nobody else has asked for a moment, nobody is spared by that, and those of batches are prepared all at once.

A request is parsed, rendered and tokenized before the engine gets it, all in one event loop. Lines of a batch begin by
the dozen when others have ended; whoever comes then must not wait until all of them have been prepared. Nor for a step
of the engine with lines in it, which would begin while an interactive request is prepared: the engine is told of it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deployments.replica.scheduling.notice import Notice
from deployments.waiting import wait_at_most

_PATIENCE_S = 0.05
"""A background request waits for so long at most for a moment without interactive ones, which may never come."""
_ON_ITS_WAY_S = 0.02  # What takes longer to prepare is long, and the engine had better go on meanwhile.
_HANDED_OVER_S = 0.005  # From the end of its turn until the engine has it; mostly a millisecond or two.
QUIET_S = 10.0
"""So long after the last interactive request, those of batches have the replica and its engine for themselves.

Who comes then waits for a step as large as the engine makes them. Where requests come at random times, 2 s apart on
average, one of 150 does.
"""


class Preparing:
    """Gives turns."""

    def __init__(self, notice: Notice | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell the engine by `notice` that an interactive request is on its way; the clock is the notice's."""
        self._notice = notice or Notice()
        self._clock = clock
        self._interactive_at = float("-inf")
        self._num_interactive = 0
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._one_by_one = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, priority: int) -> AsyncIterator[None]:
        """Wait for the turn of a request of this priority; it lasts as long as the context."""
        if priority > 0 and self._clock() - self._interactive_at > QUIET_S:
            yield
            return
        if priority > 0:
            async with self._one_by_one:
                await wait_at_most(self._is_free, _PATIENCE_S)
                yield
            return
        self._interactive_at = now = self._clock()
        self._num_interactive += 1
        self._is_free.clear()
        self._notice.until = now + _ON_ITS_WAY_S
        is_prepared = False
        try:
            yield
            is_prepared = True
        finally:
            self._num_interactive -= 1
            if not self._num_interactive:
                self._is_free.set()
                self._notice.until = self._clock() + _HANDED_OVER_S if is_prepared else 0.0
