"""A watch goes on after an error that it did not expect, and says where it was, but not what it said."""

import asyncio
import logging

import pytest

from deployments import waiting
from deployments.waiting import Watch
from tests.waiting import eventually


class Failing(Watch):
    """Fails twice with a message that nobody may read, then looks until it is closed."""

    num_begun = 0

    async def _keep(self) -> None:
        self.num_begun += 1
        if self.num_begun <= 2:
            raise ValueError("a prompt")
        await asyncio.Event().wait()


async def test_watch_begins_again_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.001)
    told: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    waiting.logger.addHandler(handler)
    try:
        watch = Failing()
        watch.watch()
        await eventually(lambda: watch.num_begun == 3)
        await watch.close()
    finally:
        waiting.logger.removeHandler(handler)
    assert len(told) == 1
    assert told[0].startswith("Failing failed and begins again: ValueError at test_waiting.py:")
    assert "a prompt" not in told[0]


async def test_watch_that_has_not_begun_can_be_closed() -> None:
    await Failing().close()
