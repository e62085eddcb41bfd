"""How a task looks again and again, waits for news, says that it waits in vain, and is ended."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress


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
    """What looks at something again and again, from `watch` to `close`. A subclass says how in `_keep`."""

    _task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

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
