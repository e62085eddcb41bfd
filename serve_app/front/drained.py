"""Whether a replica's region is drained, as the database says. While the database is away the last word holds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sqlalchemy.exc import DBAPIError

from deployments.waiting import end, worth_logging

logger = logging.getLogger(__name__)

_INTERVAL_S = 2.0


class DrainWatch:
    """Asks again and again. `ask` returns whether the region is drained; it may raise DBAPIError."""

    def __init__(self, ask: Callable[[], Awaitable[bool]]) -> None:
        self.is_drained = False
        self._ask = ask
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin to ask."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            await end(self._task)

    async def _keep(self) -> None:
        num_failures = 0
        while True:
            try:
                self.is_drained = await self._ask()
                num_failures = 0
            except DBAPIError as error:
                num_failures += 1
                if worth_logging(num_failures):
                    logger.warning("Whether the region is drained is not known: %s", type(error).__name__)
            await asyncio.sleep(_INTERVAL_S)
