"""How a task looks again and again, waits for news, says that it waits in vain, and is ended."""

import asyncio
import logging
import traceback
from abc import ABC, abstractmethod
from contextlib import suppress
from itertools import count
from pathlib import PurePath

logger = logging.getLogger(__name__)

_PAUSE_S = 1.0


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Return when the event is set, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and return once it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class Watch(ABC):
    """What looks at something again and again, from `watch` to `close`. A subclass says how in `_keep`.

    An error that `_keep` does not expect is logged, and it begins again a second later.
    """

    _task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._keep_on())

    async def close(self) -> None:
        """Stop, also if it has not begun."""
        if self._task is not None:
            await end(self._task)

    @abstractmethod
    async def _keep(self) -> None:
        """Look again and again; `close` cancels this."""

    async def _keep_on(self) -> None:
        for num_failures in count(1):
            try:
                await self._keep()
                return
            except Exception as error:
                if worth_logging(num_failures):
                    _log_bug(type(self).__name__, error)
            await asyncio.sleep(_PAUSE_S)


def worth_logging(num_failures: int) -> bool:
    """Return whether to log the latest of a row of failures: the first, the tenth and each hundredth are logged."""
    return num_failures in (1, 10) or num_failures % 100 == 0


def _log_bug(watch: str, error: Exception) -> None:
    """Log where an error came from, without its message, which may quote what is stored."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{PurePath(last.filename).name}:{last.lineno}"
    logger.error("%s failed and begins again: %s at %s", watch, type(error).__name__, place)
