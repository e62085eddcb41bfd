"""Decides which request the replica prepares next: interactive ones at once, batch requests one at a time.

A request is parsed, rendered and tokenized before the engine gets it, all in one event loop. Batch lines start by the
dozen when others have ended, and an interactive request must not wait until all of them are prepared. Nor must it wait
for an engine step with batch lines that starts while it is prepared: a `Notice` keeps the engine from starting one.

Once no interactive request has come for `QUIET_S`, batch requests are prepared without waiting for each other.

Of each account, a few interactive requests are prepared at once: those of another go between, however many one sends.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from deployments.replica.scheduling.notice import Notice
from deployments.waiting import Lanes, wait_at_most

_MAX_WAIT_S = 0.05
"""How long a batch request waits at most for a gap between interactive ones, which may never come."""
_AT_ONCE = 4
_ON_ITS_WAY_S = 0.02  # Longer preparation means a long prompt; do not hold the engine for it.
_HANDED_OVER_S = 0.005  # From the end of preparation until the engine has the request; mostly 1 or 2 ms.
QUIET_S = 10.0
"""How long after the last interactive request batch requests get the replica and its engine for themselves.

The next interactive request then waits for a step of full size. With requests at random times, 2 s apart on average,
one in 150 does.
"""


class Preparing:
    """The order in which requests are prepared."""

    def __init__(self, notice: Notice | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Announce interactive requests to the engine by `notice`; `clock` must be the notice's clock."""
        self._notice = notice or Notice()
        self._clock = clock
        self._interactive_at = float("-inf")
        self._num_interactive = 0
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._one_by_one = asyncio.Lock()
        self._lanes = Lanes(_AT_ONCE)

    @asynccontextmanager
    async def turn(self, priority: int, payer: str = "") -> AsyncIterator[None]:
        """Wait until a request of this priority, of this account, may be prepared: that happens inside the context."""
        if priority > 0 and self._clock() - self._interactive_at > QUIET_S:
            yield
            return
        if priority > 0:
            async with self._one_by_one:
                await wait_at_most(self._is_free, _MAX_WAIT_S)
                yield
            return
        async with self._lanes.enter(payer), self._announced():
            yield

    @asynccontextmanager
    async def _announced(self) -> AsyncIterator[None]:
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
