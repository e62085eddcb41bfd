"""Decides which request the replica prepares next: interactive ones at once, batch requests one at a time.

A request is parsed, rendered and tokenized before the engine gets it, all in one event loop. Dozens of batch lines
start when others end, and an interactive request must not wait until all of them are prepared. Once no interactive
request has come for `QUIET_S`, batch requests are prepared without waiting for each other. An account has only a few
interactive requests prepared at once, so that those of other accounts go between.

The engine is a process of its own, and gets a request some milliseconds after the replica. Meanwhile it might start a
step with batch lines, which would delay the request. So the replica writes a time into shared memory (`Notice`), and
until then the engine's scheduler starts no such step. Both read the same clock, `time.monotonic()`, in seconds.
"""

import asyncio
import os
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.shared_memory import SharedMemory
from typing import Self

from deployments.waiting import Lanes, wait_at_most

_NAME = "MANTA_NOTICE"
_MOMENT = struct.Struct("d")
_MAX_WAIT_S = 0.05
"""How long a batch request waits for a gap between interactive ones, which may never come."""
_AT_ONCE = 4
_ON_ITS_WAY_S = 0.02  # Longer preparation means a long prompt; do not hold the engine for it.
_HANDED_OVER_S = 0.005  # From the end of preparation until the engine has the request; mostly 1 or 2 ms.
QUIET_S = 10.0
"""How long after the last interactive request the replica and its engine run batch requests alone.

The next interactive request then waits for a step of full size. With requests at random times, 2 s apart on average,
one in 150 does.
"""


class Notice:
    """The time until which an interactive request may arrive; in the past if none is expected."""

    def __init__(self, memory: SharedMemory | None = None) -> None:
        """Use the shared memory; without it, no other process sees the time."""
        self._memory = memory
        self._buffer = (memory and memory.buf) or memoryview(bytearray(_MOMENT.size))

    @property
    def until(self) -> float:
        """The time in seconds."""
        return float(_MOMENT.unpack_from(self._buffer)[0])

    @until.setter
    def until(self, moment: float) -> None:
        _MOMENT.pack_into(self._buffer, 0, moment)

    @classmethod
    @contextmanager
    def offer(cls) -> Iterator[Self]:
        """Yield a notice for processes that start in the context; they `find` it. It stays valid afterwards."""
        memory = SharedMemory(create=True, size=_MOMENT.size)
        os.environ[_NAME] = memory.name
        try:
            yield cls(memory)
        finally:
            del os.environ[_NAME]
            memory.unlink()

    @classmethod
    def find(cls) -> Self:
        """Return the notice that the parent process offers, else a notice of no requests."""
        name = os.environ.get(_NAME)
        return cls(SharedMemory(name)) if name is not None else cls()


class Preparing:
    """The order in which requests are prepared."""

    def __init__(self, notice: Notice | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Announce interactive requests to the engine through `notice`; `clock` must be the notice's clock."""
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
        """Context manager that starts when a request may be prepared, and in which it is prepared."""
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
