import asyncio
import math
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.messages import TransportDown
from deployments.state.database.clock import PastClock
from deployments.state.database.connection import Database
from deployments.state.usage.request_log import RequestLogReader
from deployments.state.usage.store import LogTrim, UsageRow, UsageStore
from tests.contract.state.processes import DirectTransport, kill, resolved, start
from tests.contract.state.records import NOON, record
from tests.twins.gatekeeper import TestClock

DAY_S, YEAR_S = 86_400.0, 365 * 86_400.0


async def test_usage_adds_up_by_key_day_and_model(database: Database) -> None:
    store = UsageStore(database)
    records = [
        record(1),
        record(2),
        record(3, model="acme/large"),
        record(4, at=NOON + 86_400),
        record(5, key_id="key_2", account="other"),
        record(6, key_id=None, account=None),
    ]
    assert await store.add(records) == 6
    assert await store.add([record(7)]) == 1
    assert await store.by_day(key_id="key_1") == [
        UsageRow("key_1", "acme", date(2023, 11, 16), "acme/small", 1, 0, 10, 5, 4),
        UsageRow("key_1", "acme", date(2023, 11, 15), "acme/large", 1, 0, 10, 5, 4),
        UsageRow("key_1", "acme", date(2023, 11, 15), "acme/small", 3, 0, 30, 15, 12),
    ]
    assert [row.key_id for row in await store.by_day(account="other")] == ["key_2"]
    assert [row.day.day for row in await store.by_day(since=date(2023, 11, 16))] == [16]
    assert await store.count() == 7


async def test_tokens_that_did_not_count_are_kept_and_added_up(database: Database) -> None:
    store = UsageStore(database)
    flex = record(1, service_tier="flex", discounted_tokens=7)
    await store.add([flex, record(2)])
    (row,) = await store.by_day()
    assert (row.prompt_tokens, row.completion_tokens, row.discounted_tokens) == (20, 10, 7)
    seen = await store.last_requests("key_1")
    assert sorted(seen, key=lambda one: one.request_id) == [flex, record(2)]


async def test_requests_of_an_account_are_found_by_their_ids(database: Database) -> None:
    store = UsageStore(database)
    refused = record(1, status=400, code="invalid_value", param="messages[0].content")
    await store.add([refused, record(2), record(3, account="other")])
    ids = [record(number).request_id for number in (1, 3, 4)]
    assert await RequestLogReader(database).find_all("acme", ids) == {refused.request_id: refused}


async def test_a_record_that_arrives_twice_is_counted_once(database: Database) -> None:
    store = UsageStore(database)
    batch = [record(index) for index in range(1_000)]
    assert await store.add(batch) == 1_000
    assert await store.add([*batch[500:], *batch[500:], record(1000)]) == 1
    (row,) = await store.by_day()
    assert (row.num_requests, row.prompt_tokens) == (1_001, 10_010)


@pytest.mark.parametrize("is_together", [True, False])
@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0)])
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(
            {"at": NOON + 90_000, "status": 499, "model": "acme/large"}, id="cut off, by a clock that is ahead"
        ),
        pytest.param({"status": 200}, id="answered, and the answer was lost"),
        pytest.param({"status": 499, "prompt_tokens": 0, "completion_tokens": 0}, id="cut off before it ran"),
    ],
)
async def test_request_that_was_tried_twice_is_counted_once_as_it_was_answered(
    database: Database, first: dict[str, object], order: tuple[int, ...], is_together: bool
) -> None:
    store = UsageStore(database)
    await store.add([record(1)])
    answered = record(2, at=NOON + 1, completion_tokens=7)
    tries = [record(2, **first), answered]
    arriving = [tries[number] for number in order]
    for batch in [arriving] if is_together else [[one] for one in arriving]:
        await store.add(batch)
    assert [row for row in await store.by_day() if row.num_requests] == [
        UsageRow("key_1", "acme", date(2023, 11, 15), "acme/small", 2, 0, 20, 12, 8)
    ]
    assert not any(row.prompt_tokens or row.num_errors for row in (await store.by_day())[:-1])
    assert await store.last_requests("key_1") == [answered, record(1)]


async def test_failed_requests_do_not_bring_their_model_names_along(database: Database) -> None:
    store = UsageStore(database)
    unused = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}
    await store.add(
        [
            record(1, status=404, code="model_not_found", model="made/up-1", **unused),
            record(2, status=404, code="model_not_found", model="made/up-2", **unused),
            record(3, status=500, code="server_error"),
        ]
    )
    rows = {row.model: (row.num_requests, row.num_errors) for row in await store.by_day()}
    assert rows == {"": (2, 2), "acme/small": (1, 1)}


async def test_texts_of_any_kind_are_kept(database: Database) -> None:
    store = UsageStore(database)
    odd = record(1, request_id="x" * 1_000, model="'; DROP TABLE usage; --\0\ud800", route="/" + "é" * 500)
    await store.add([odd])
    (kept,) = await store.last_requests("key_1")
    assert kept.request_id == "x" * 128
    assert kept.model == "'; DROP TABLE usage; --?"
    assert len(kept.route) == 128
    assert len(await store.by_day()) == 1


async def test_the_last_requests_come_newest_first_and_in_pages(database: Database) -> None:
    store = UsageStore(database)
    records = [record(index, at=NOON + index) for index in range(5)]
    await store.add(records)
    assert await store.last_requests("key_1", limit=2) == [records[4], records[3]]
    assert await store.last_requests("key_1", limit=2, before=NOON + 3) == [records[2], records[1]]
    assert await store.last_requests("key_2") == []


async def test_old_records_are_dropped_and_usage_stays(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.state.usage.store._DROPPED_AT_ONCE", 2)
    store = UsageStore(database)
    fresh = replace(record(9), at=time.time())
    await store.add([*(record(number) for number in range(5)), fresh])
    await store.drop_log_before(time.time() - DAY_S, at_most_s=math.inf)
    assert await store.count() == 1
    assert sum(row.num_requests for row in await store.by_day()) == 6
    await store.drop_log_before(math.inf, at_most_s=math.inf)
    await store.drop_log_before(math.inf, at_most_s=math.inf)
    assert await store.count() == 0


class Trimming:
    """A log that keeps ten days and holds nine, a record every hour; trimmed by clocks that the test moves."""

    def __init__(self, database: Database, *, ahead_s: float = 0.0) -> None:
        """Take how far ahead the wall clock is from the start on."""
        self.store = UsageStore(database)
        self.wall, self.machine = TestClock(NOON + ahead_s), TestClock(0.0)
        self.trim = LogTrim(self.store, 10, PastClock(self.wall, self.machine), self.machine)

    async def fill(self) -> None:
        hours = range(9 * 24)
        await self.store.add(record(hour, at=NOON - hour * 3600) for hour in hours)

    async def pass_hour(self) -> None:
        self.wall.advance(3600)
        self.machine.advance(3600)
        await self.trim.trim()

    async def ages(self) -> list[int]:
        """How many hours before noon the records are from, the latest first."""
        found = await self.store.last_requests("key_1", limit=1_000)
        return [round((NOON - one.at) / 3600) for one in found]


async def test_the_log_is_trimmed_as_time_passes(database: Database) -> None:
    trimming = Trimming(database)
    await trimming.fill()
    for _ in range(24):
        await trimming.pass_hour()
    assert await trimming.ages() == list(range(9 * 24))
    for _ in range(5):
        await trimming.pass_hour()
    assert await trimming.ages() == list(range(9 * 24 - 4))


async def test_a_clock_that_jumps_ahead_takes_nothing_of_the_log(database: Database) -> None:
    trimming = Trimming(database)
    await trimming.fill()
    trimming.wall.advance(5 * YEAR_S)
    await trimming.store.add([record(request_id="meanwhile", at=trimming.wall())])
    for _ in range(24):
        await trimming.pass_hour()
    assert len(await trimming.ages()) == 9 * 24 + 1
    trimming.wall.advance(-5 * YEAR_S)
    await trimming.pass_hour()
    assert len(await trimming.ages()) == 9 * 24 + 1


async def test_a_start_with_a_clock_that_is_ahead_takes_a_day_of_the_log_an_hour_at_most(database: Database) -> None:
    trimming = Trimming(database, ahead_s=5 * YEAR_S)
    await trimming.fill()
    await trimming.store.add([record(request_id="meanwhile", at=trimming.wall())])
    await trimming.trim.trim()
    assert len(await trimming.ages()) == 9 * 24 + 1
    await trimming.pass_hour()
    assert len(await trimming.ages()) == 8 * 24 + 1
    trimming.wall.advance(-5 * YEAR_S)
    await trimming.pass_hour()
    assert len(await trimming.ages()) == 8 * 24 + 1


async def test_a_clock_that_jumps_back_takes_nothing_of_the_log(database: Database) -> None:
    trimming = Trimming(database)
    await trimming.fill()
    trimming.wall.advance(-5 * YEAR_S)
    await trimming.store.add([record(request_id="meanwhile", at=trimming.wall())])
    await trimming.pass_hour()
    assert len(await trimming.ages()) == 9 * 24 + 1
    trimming.wall.advance(5 * YEAR_S)
    await trimming.pass_hour()
    assert await trimming.ages() == list(range(9 * 24))  # The one that says it is five years old goes by what it says.


async def test_a_log_that_is_behind_catches_up_and_no_gap_in_it_takes_time(database: Database) -> None:
    trimming = Trimming(database)
    await trimming.fill()
    await trimming.store.add([record(request_id="old", at=NOON - YEAR_S)])
    trimming.wall.advance(30 * DAY_S)
    late = LogTrim(trimming.store, 10, PastClock(trimming.wall, trimming.machine), trimming.machine)
    trimming.trim = late
    await trimming.pass_hour()
    assert await trimming.ages() == list(range(9 * 24))
    for _ in range(9):
        await trimming.pass_hour()
    assert await trimming.ages() == []


async def test_shipped_records_survive_a_kill_of_the_gatekeeper_and_count_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    state = resolved(database_url, tmp_path / "state")
    transport = DirectTransport(start(state))
    log = ShippedRequestLog(transport, background=False)
    for number in range(30):
        log.record(record(number))
    await log.ship()
    await asyncio.to_thread(transport.gatekeeper._background.run, transport.gatekeeper._flush_records())
    for number in range(30, 50):
        log.record(record(number))
    await log.ship()
    kill(transport.gatekeeper)
    transport.gatekeeper = start(state)
    log.record(record(50))
    await log.close()
    transport.gatekeeper.stop()
    (row,) = await UsageStore(database).by_day()
    assert row.num_requests == 51


async def test_records_are_shipped_in_the_background(database: Database, database_url: str, tmp_path: Path) -> None:
    gatekeeper = start(resolved(database_url, tmp_path / "state"))
    log = ShippedRequestLog(DirectTransport(gatekeeper))
    log.record(record(1))
    store = UsageStore(database)
    for _ in range(100):
        if await store.count():
            break
        await asyncio.sleep(0.05)
    assert await store.count() == 1
    await log.close()
    gatekeeper.stop()


async def test_recording_never_fails_and_is_bounded_while_the_gatekeeper_is_away(monkeypatch) -> None:
    class Away:
        async def record(self, *_: object) -> tuple[str, int]:
            raise TransportDown("away")

    monkeypatch.setattr("deployments.limits.client.request_log.MAX_KEPT", 100)
    log = ShippedRequestLog(Away(), background=False)  # type: ignore[arg-type]
    for number in range(250):
        log.record(record(number))
    assert not await log.ship()
    assert (len(log._kept), log.num_dropped) == (100, 150)
