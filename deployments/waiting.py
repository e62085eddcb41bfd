"""How long a task waits for news."""

import asyncio
from contextlib import suppress


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Return when the event is set, or the time is over."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
