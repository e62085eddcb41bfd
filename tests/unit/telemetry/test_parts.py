"""Each part is shown as up or away, whatever its question raises; moved requests are counted once."""

import asyncio
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import OperationalError

from deployments.state.objects.copies import Backlog, Side
from deployments.state.objects.pair import PairedStore
from deployments.state.webhooks.queue import Waiting
from serve_app.telemetry import parts as module
from serve_app.telemetry.parts import PartsWatcher
from serve_app.telemetry.series import COPIES_LAG, COPIES_OWED, MOVED, PART_UP, PrometheusMetrics
from tests.logs import lines_of
from tests.twins.objects import MemoryObjects
from tests.waiting import eventually


class Noted(list):
    def add(self, series, values, amount):
        self.append((series, *values, amount))


@pytest.fixture
def own_log():
    """What the module has logged."""
    with lines_of(module.logger, "%(levelname)s %(message)s") as lines:
        yield lines


async def answer():
    return None


def saying(*answers):
    """Return a question that is answered with each of these in turn, or raises it."""
    turns = iter(answers)

    async def ask():
        answer = next(turns)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


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


async def test_what_a_store_lacks_is_shown_until_it_lacks_nothing():
    pending = SimpleNamespace(backlog=saying({"asia": Backlog(2, 90.0)}, OperationalError("", {}, Exception()), {}))
    sink = Noted()
    pair = PairedStore(Side("files", MemoryObjects()), Side("asia", MemoryObjects()), pending)
    watcher = PartsWatcher({}, dict, sink, pair)
    for _ in range(3):
        await watcher.look()
    nothing = [(COPIES_OWED, "files", 0), (COPIES_LAG, "files", 0.0)]
    assert sink == [
        *nothing, (COPIES_OWED, "asia", 2), (COPIES_LAG, "asia", 90.0),
        *nothing, (COPIES_OWED, "asia", 0), (COPIES_LAG, "asia", 0.0),
    ]  # fmt: skip


async def test_what_webhooks_have_not_acknowledged_is_shown_look_after_look():
    queue = SimpleNamespace(waiting=saying(Waiting(3, 90.0), OperationalError("", {}, Exception()), Waiting(1, 0.5)))
    metrics = PrometheusMetrics()
    watcher = PartsWatcher({"database": answer}, dict, metrics, webhooks=queue)
    for num_deliveries, oldest_s in ((3.0, 90.0), (3.0, 90.0), (1.0, 0.5)):
        await watcher.look()
        page = metrics.render().decode().splitlines()
        assert f"manta_webhooks_waiting {num_deliveries}" in page
        assert f"manta_webhooks_oldest_seconds {oldest_s}" in page
