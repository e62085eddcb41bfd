"""How a task goes on after an error, waits for news, says that it waits in vain, and is ended."""

import asyncio
import logging
import traceback
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
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


async def keep_on(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Return once `work` does. A second after an error that it did not expect, it begins again.

    The first of these errors, the tenth and each hundredth are logged.
    """
    for num_failures in count(1):
        try:
            await work()
            return
        except Exception as error:
            if worth_logging(num_failures):
                _log_bug(name, error)
        await asyncio.sleep(_PAUSE_S)


class Watch(ABC):
    """What looks at something again and again, from `watch` to `close`. A subclass says how in `_keep`."""

    _task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(keep_on(type(self).__name__, self._keep))

    async def close(self) -> None:
        """Stop, also if it has not begun."""
        if self._task is not None:
            await end(self._task)

    @abstractmethod
    async def _keep(self) -> None:
        """Look again and again; `close` cancels this."""


def worth_logging(num_failures: int) -> bool:
    """Return whether to log the latest of a row of failures: the first, the tenth and each hundredth are logged."""
    return num_failures in (1, 10) or num_failures % 100 == 0


def _log_bug(name: str, error: Exception) -> None:
    """Log where an error came from, without its message, which may quote what is stored."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{PurePath(last.filename).name}:{last.lineno}"
    logger.error("%s failed and begins again: %s at %s", name, type(error).__name__, place)
