"""An event loop in a thread of its own: what is cancelled ends, and what it began to close is closed."""

import asyncio
import threading
import time
from concurrent.futures import CancelledError

import pytest

from deployments.background_loop import BackgroundLoop


def test_a_task_that_another_began_just_before_both_are_cancelled_runs() -> None:
    loop, closed, is_working = BackgroundLoop("test"), threading.Event(), threading.Event()

    async def close() -> None:
        closed.set()
        await asyncio.Event().wait()

    async def work() -> None:
        is_working.set()
        time.sleep(0.1)  # noqa: ASYNC251  # The loop stands still until it has been told to cancel.
        await asyncio.sleep(0)
        await asyncio.shield(asyncio.create_task(close()))

    working = loop.start(work())
    is_working.wait()
    loop.stop()
    assert closed.is_set()
    with pytest.raises(CancelledError):
        working.result(0)


def test_what_is_cancelled_is_waited_for() -> None:
    loop, ended = BackgroundLoop("test"), threading.Event()
    is_working = threading.Event()

    async def work() -> None:
        is_working.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            ended.set()

    loop.start(work())
    is_working.wait()
    loop.cancel()
    assert ended.is_set()
    loop.stop()
