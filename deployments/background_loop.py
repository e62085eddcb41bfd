"""An event loop in a thread of its own, for work that must not hold up the calls of the process around it."""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from types import CoroutineType
from typing import Any, TypeVar

from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)
T = TypeVar("T")


class BackgroundLoop:
    """A running event loop; `stop` ends it and its thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Return what `work` returns; called from any other thread.

        Raises:
            TimeoutError: it takes longer than `timeout_s` seconds; it is then cancelled.
        """
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def repeat(self, name: str, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` every `interval_s` seconds from now on; when it fails that is logged, and it is tried again."""
        self.start(_repeat(name, interval_s, work))

    def cancel(self) -> None:
        """Cancel what is running and wait until it has ended."""
        self.run(_cancel_others(), timeout_s=5)

    def stop(self) -> None:
        """Cancel what is running and end the thread."""
        self.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    """Cancel every task of this loop but this one, and return once all have ended.

    A task that has not begun is let begin first: cancelled before, it would never run, and what closes a connection
    is such a task (SQLAlchemy shields it).
    """
    this, cancelled = asyncio.current_task(), set[asyncio.Task[Any]]()
    while others := asyncio.all_tasks() - {this}:
        begun = {task for task in others if _has_begun(task)}
        for task in begun - cancelled:
            task.cancel()
        cancelled |= begun
        if begun == others:
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(0)


def _has_begun(task: asyncio.Task[Any]) -> bool:
    work = task.get_coro()
    return not isinstance(work, CoroutineType) or inspect.getcoroutinestate(work) != inspect.CORO_CREATED


async def _repeat(name: str, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
    failures = 0
    while True:
        await asyncio.sleep(interval_s * min(1 + failures, 10))
        try:
            await work()
            failures = 0
        except Exception as error:
            failures += 1
            if worth_logging(failures):
                logger.warning("%s failed %d times in a row: %s", name, failures, type(error).__name__)
