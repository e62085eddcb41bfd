"""Tasks beside requests: how they wait, take turns, repeat their work, go on after an error, and end."""

import asyncio
import inspect
import logging
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import PurePath
from types import CoroutineType
from typing import Any, TypeVar
from weakref import WeakValueDictionary

logger = logging.getLogger(__name__)
T = TypeVar("T")

_PAUSE_S = 1.0


async def wait_at_most(event: asyncio.Event, timeout_s: float) -> None:
    """Return when the event is set, or after `timeout_s` seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and return once it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; if this is cancelled, `work` still ends first. An error of it comes before that."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.result()
        raise


async def repeat(
    name: str,
    interval_s: float,
    work: Callable[[], Awaitable[object]],
    expected: tuple[type[Exception], ...] = (Exception,),
    max_slowdown: int = 1,
) -> None:
    """Call `work` until this task is cancelled, `interval_s` seconds after its last call ended.

    Expected errors are counted, and the first, the tenth and each hundredth in a row are logged under `name`. With
    each of them the pause grows by `interval_s`, up to `max_slowdown` times.
    """
    num_failures = 0
    while True:
        try:
            await work()
            num_failures = 0
        except expected as error:
            num_failures += 1
            if worth_logging(num_failures):
                logger.warning("%s failed %d times in a row: %s", name, num_failures, type(error).__name__)
        await asyncio.sleep(interval_s * min(1 + num_failures, max_slowdown))


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and return once they have ended, whatever their errors."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


async def keep_on(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Return once `work` does. After an unexpected error, wait a second and call it again.

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
    """A task beside requests, which runs from `watch` to `close`. A subclass implements `_keep`."""

    _task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(keep_on(type(self).__name__, self._keep))

    async def close(self) -> None:
        """Stop the task, if it was started."""
        if self._task is not None:
            await end(self._task)

    @abstractmethod
    async def _keep(self) -> None:
        """Do the work until `close` cancels it."""


def worth_logging(num_failures: int) -> bool:
    """Return whether to log this failure in a row: the first, the tenth and each hundredth."""
    return num_failures in (1, 10) or num_failures % 100 == 0


def _log_bug(name: str, error: Exception) -> None:
    """Log where an error came from, without its message, which may quote stored content."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{PurePath(last.filename).name}:{last.lineno}"
    logger.error("%s failed and begins again: %s at %s", name, type(error).__name__, place)


class Lanes:
    """Turns in an event loop: an account that starts many tasks at once does not hold up the others.

    A hundred requests that arrive together are a hundred tasks, and the next one would wait until each of them has done
    all that it can do without waiting. Each name, such as an account, has a lane for `width` tasks at once.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._lanes: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def enter(self, name: str) -> AsyncIterator[None]:
        """Wait for a place in a lane, and hold it inside the context and until the event loop's next turn."""
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = asyncio.Semaphore(self._width)
        await lane.acquire()
        try:
            yield
        finally:
            asyncio.get_running_loop().call_soon(lane.release)


class BackgroundLoop:
    """An event loop in a thread of its own, for work that must not hold up the calls of its process.

    It runs until `stop`.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Return what `work` returns. Call it from any other thread.

        Raises:
            TimeoutError: it took longer than `timeout_s` seconds, and was cancelled.
        """
        future = self.start(work)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` without waiting for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def repeat(self, name: str, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` every `interval_s` seconds from now on; after failures, up to ten times less often."""

        async def repeat_later() -> None:
            await asyncio.sleep(interval_s)
            await repeat(name, interval_s, work, max_slowdown=10)

        self.start(repeat_later())

    def cancel(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self.run(_cancel_others(), timeout_s=5)

    def stop(self) -> None:
        """Cancel all tasks and end the thread."""
        self.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    """Cancel every other task of this loop, and return when all have ended.

    A task that has not started is started first. Otherwise it would never run, and SQLAlchemy closes connections in
    such tasks, shielded.
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
