"""Waiting for what another task or a real server does."""

import asyncio
from collections.abc import Awaitable, Callable


async def eventually(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Return once the condition holds; one that is awaited may be a coroutine function.

    Raises:
        TimeoutError: it did not come to hold in time.
    """
    async with asyncio.timeout(timeout_s):
        while not await _holds(condition):  # noqa: ASYNC110 - the condition may depend on anything.
            await asyncio.sleep(0.002)


async def _holds(condition: Callable[[], object]) -> object:
    found = condition()
    return await found if isinstance(found, Awaitable) else found
