"""Work that ends when its client disconnects."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive

Result = TypeVar("Result")


class DepartureWatch:
    """Cancels an answer when its client disconnects; one task for each request."""

    def __init__(self, receive: Receive, answering: asyncio.Task[Any]) -> None:
        self.has_left = False
        self._task = asyncio.create_task(self._wait(receive, answering))

    async def _wait(self, receive: Receive, answering: asyncio.Task[Any]) -> None:
        with suppress(Exception):  # A connection that fails is gone too.
            while (await receive())["type"] != "http.disconnect":
                continue
        self.has_left = True
        answering.cancel()

    def stop(self) -> None:
        """Stop waiting."""
        self._task.cancel()


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return what work comes to, for a route that does not answer with an outcome; its body has been read.

    If the client disconnects, the work is cancelled.
    """
    working = asyncio.create_task(work)
    watch = DepartureWatch(receive, working)
    try:
        return await working
    finally:
        watch.stop()
        working.cancel()
