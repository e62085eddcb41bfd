"""Keeps sandboxes ready for new containers."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from deployments.tools.sandbox.sandbox import Sandbox
from deployments.waiting import end

logger = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE_S = 5.0


class WarmPool:
    """Keeps `num_warm` sandboxes ready, and makes one at a time when some have been taken."""

    def __init__(self, start: Callable[[], Awaitable[Sandbox]], num_warm: int) -> None:
        self._start = start
        self._num_warm = num_warm
        self._ready: deque[Sandbox] = deque()
        self._wanted = asyncio.Event()
        self._refilling: asyncio.Task[None] | None = None

    def open(self) -> None:
        """Start to make sandboxes."""
        self._wanted.set()
        self._refilling = asyncio.create_task(self._refill())

    async def take(self) -> Sandbox:
        """Return an unused sandbox: a warm one, or a new one if none is ready.

        Raises:
            SandboxUnavailable: it cannot be built.
        """
        while self._ready:
            sandbox = self._ready.popleft()
            self._wanted.set()
            if sandbox.is_running:
                return sandbox
            await sandbox.close()
        return await self._start()

    async def _refill(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while len(self._ready) < self._num_warm:
                try:
                    self._ready.append(await self._start())
                except Exception as error:
                    logger.warning("A sandbox could not be made ready: %s", error)
                    await asyncio.sleep(_PAUSE_AFTER_FAILURE_S)

    async def close(self) -> None:
        """End every sandbox that was not taken."""
        if self._refilling is not None:
            await end(self._refilling)
        while self._ready:
            await self._ready.popleft().close()
