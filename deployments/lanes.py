"""Turns in an event loop: an account that begins much at once does not hold others up.

A hundred requests that arrive together are a hundred tasks, and what comes next waits until each of them has done all
that it can do without waiting. In lanes, a few of each account's do so, and then others have their turn.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary


class Lanes:
    """A lane for each name, such as an account. At most `width` tasks are in a lane at once."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lanes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def enter(self, name: str) -> AsyncIterator[None]:
        """Wait for a place in a lane, which is held inside the context and until the event loop's next turn."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = asyncio.Semaphore(self._width)
        await lane.acquire()
        try:
            yield
        finally:
            asyncio.get_running_loop().call_soon(lane.release)
