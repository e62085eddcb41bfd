"""Each part is shown as up or away, whatever its question raises; moved requests are counted once."""

import asyncio
import logging

import pytest

from serve_app.telemetry import parts as module
from serve_app.telemetry.parts import PartsWatcher
from serve_app.telemetry.series import MOVED, PART_UP
from tests.waiting import eventually


class Noted(list):
    def add(self, series, values, amount):
        self.append((series, *values, amount))


@pytest.fixture
def own_log():
    """What the module has logged."""
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(f"{record.levelname} {record.getMessage()}")
    logger = logging.getLogger(module.__name__)
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield seen
    logger.removeHandler(handler)
    logger.setLevel(before)


async def answer():
    return None


async def test_a_part_that_raises_or_hangs_is_away_and_the_others_are_up(monkeypatch):
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.01)

    async def fail():
        raise ConnectionError

    sink = Noted()
    await PartsWatcher(
        {"database": answer, "object store": fail, "gatekeeper": asyncio.Event().wait}, dict, sink
    ).look()
    assert sink == [(PART_UP, "database", 1), (PART_UP, "object store", 0), (PART_UP, "gatekeeper", 0)]


async def test_what_goes_and_comes_is_logged_once(own_log):
    turns = iter((True, False, False, True, True))

    async def ask():
        if not next(turns):
            raise ConnectionError("secret")

    watcher = PartsWatcher({"database": ask}, dict, Noted())
    for _ in range(5):
        await watcher.look()
    assert own_log == ["WARNING database is away.", "INFO database is back."]


async def test_moved_requests_are_added_once():
    sink, total = Noted(), {"m": 0}
    watcher = PartsWatcher({}, lambda: total, sink)
    for total["m"] in (0, 2, 2, 5):
        await watcher.look()
    assert sink == [(MOVED, "m", 2), (MOVED, "m", 3)]


async def test_it_looks_until_it_is_closed(monkeypatch):
    monkeypatch.setattr(module, "_INTERVAL_S", 0.001)
    sink = Noted()
    watcher = PartsWatcher({"database": answer}, dict, sink)
    watcher.watch()
    await eventually(lambda: len(sink) >= 3)
    await watcher.close()
    seen = len(sink)
    await asyncio.sleep(0.01)
    assert len(sink) == seen
