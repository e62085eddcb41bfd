"""Waiting for what another task or a real server does."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator

LEAST_PAUSE_S, MAX_PAUSE_S = 0.002, 0.1


def pauses() -> Iterator[float]:
    """Return the seconds between two looks: 2 ms, doubled up to 100 ms, so that looking leaves the cores alone."""
    return (min(LEAST_PAUSE_S * 2**num_looks, MAX_PAUSE_S) for num_looks in itertools.count())


async def eventually(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Return once the condition holds; one that is awaited may be a coroutine function.

    Raises:
        TimeoutError: it did not come to hold in time.
    """
    async with asyncio.timeout(timeout_s):
        for pause_s in pauses():
            if await _holds(condition):
                return
            await asyncio.sleep(pause_s)


async def _holds(condition: Callable[[], object]) -> object:
    found = condition()
    return await found if isinstance(found, Awaitable) else found
