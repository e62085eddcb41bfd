"""How long a task waits for news, how often it says that it waits in vain, and how it is ended."""

import asyncio
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


def worth_logging(num_failures: int) -> bool:
    """Return whether to log the latest of a row of failures: the first, the tenth and each hundredth are logged."""
    return num_failures in (1, 10) or num_failures % 100 == 0
