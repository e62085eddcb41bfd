"""Waiting for what another task or a real server does."""

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it did not come to hold in time.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the condition may depend on anything.
            await asyncio.sleep(0.002)
