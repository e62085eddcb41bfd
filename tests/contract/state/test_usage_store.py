import asyncio
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from deployments.state.database import Database
from deployments.state.gatekeeper import Gatekeeper
from deployments.state.messages import TransportDown
from deployments.state.protocol import RequestRecord
from deployments.state.request_log import ShippedRequestLog
from deployments.state.usage import Numbered, UsageRow, UsageStore
from tests.contract.state.processes import DirectTransport, kill, resolved

NOON = 1_700_049_600.0  # 2023-11-15 12:00 UTC.


def record(number: int = 0, **values: object) -> RequestRecord:
    fields: dict[str, object] = {
        "request_id": f"req_{number}",
        "at": NOON,
        "key_id": "key_1",
        "account": "acme",
        "tier": "free",
        "method": "POST",
        "route": "/v1/chat/completions",
        "model": "acme/small",
        "status": 200,
        "code": None,
        "stream": True,
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "cached_tokens": 4,
        "ttft_s": 0.1,
        "total_s": 0.5,
        **values,
    }
    return RequestRecord(**fields)  # type: ignore[arg-type]


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
    assert await store.add(Numbered(str(index), one) for index, one in enumerate(records)) == 6
    assert await store.add([Numbered("more", record(7))]) == 1
    assert await store.by_day(key_id="key_1") == [
        UsageRow("key_1", "acme", date(2023, 11, 16), "acme/small", 1, 0, 10, 5, 4),
        UsageRow("key_1", "acme", date(2023, 11, 15), "acme/large", 1, 0, 10, 5, 4),
        UsageRow("key_1", "acme", date(2023, 11, 15), "acme/small", 3, 0, 30, 15, 12),
    ]
    assert [row.key_id for row in await store.by_day(account="other")] == ["key_2"]
    assert [row.day.day for row in await store.by_day(since=date(2023, 11, 16))] == [16]
    assert await store.count() == 7


async def test_a_record_that_arrives_twice_is_counted_once(database: Database) -> None:
    store = UsageStore(database)
    batch = [Numbered(f"c:{index}", record(index)) for index in range(1_000)]
    assert await store.add(batch) == 1_000
    assert await store.add([*batch[500:], *batch[500:], Numbered("c:1000", record(1000))]) == 1
    (row,) = await store.by_day()
    assert (row.num_requests, row.prompt_tokens) == (1_001, 10_010)


async def test_failed_requests_do_not_bring_their_model_names_along(database: Database) -> None:
    store = UsageStore(database)
    unused = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}
    await store.add(
        [
            Numbered("1", record(1, status=404, code="model_not_found", model="made/up-1", **unused)),
            Numbered("2", record(2, status=404, code="model_not_found", model="made/up-2", **unused)),
            Numbered("3", record(3, status=500, code="server_error")),
        ]
    )
    rows = {row.model: (row.num_requests, row.num_errors) for row in await store.by_day()}
    assert rows == {"": (2, 2), "acme/small": (1, 1)}


async def test_texts_of_any_kind_are_kept(database: Database) -> None:
    store = UsageStore(database)
    odd = record(1, request_id="x" * 1_000, model="'; DROP TABLE usage; --\0\ud800", route="/" + "é" * 500)
    await store.add([Numbered("1", odd)])
    (kept,) = await store.last_requests("key_1")
    assert kept.request_id == "x" * 128
    assert kept.model == "'; DROP TABLE usage; --?"
    assert len(kept.route) == 128
    assert len(await store.by_day()) == 1


async def test_the_last_requests_come_newest_first_and_in_pages(database: Database) -> None:
    store = UsageStore(database)
    records = [record(index, at=NOON + index) for index in range(5)]
    await store.add(Numbered(str(index), one) for index, one in enumerate(records))
    assert await store.last_requests("key_1", limit=2) == [records[4], records[3]]
    assert await store.last_requests("key_1", limit=2, before=NOON + 3) == [records[2], records[1]]
    assert await store.last_requests("key_2") == []


async def test_old_records_are_dropped_and_usage_stays(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.state.usage._DROPPED_AT_ONCE", 2)
    store = UsageStore(database)
    fresh = replace(record(9), at=time.time())
    await store.add([*(Numbered(str(number), record(number)) for number in range(5)), Numbered("9", fresh)])
    await store.drop_log_before(days=1)
    assert await store.count() == 1
    assert sum(row.num_requests for row in await store.by_day()) == 6


async def test_shipped_records_survive_a_kill_of_the_gatekeeper_and_count_once(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    state = resolved(database_url, tmp_path / "state")
    transport = DirectTransport(Gatekeeper(state))
    log = ShippedRequestLog(transport, background=False)
    for number in range(30):
        log.record(record(number))
    await log.ship()
    await asyncio.to_thread(transport.gatekeeper._background.run, transport.gatekeeper._flush_records())
    for number in range(30, 50):
        log.record(record(number))
    await log.ship()
    kill(transport.gatekeeper)
    transport.gatekeeper = Gatekeeper(state)
    log.record(record(50))
    await log.close()
    transport.gatekeeper.stop()
    (row,) = await UsageStore(database).by_day()
    assert row.num_requests == 51


async def test_records_are_shipped_in_the_background(database: Database, database_url: str, tmp_path: Path) -> None:
    gatekeeper = Gatekeeper(resolved(database_url, tmp_path / "state"))
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

    monkeypatch.setattr("deployments.state.request_log.MAX_KEPT", 100)
    log = ShippedRequestLog(Away(), background=False)  # type: ignore[arg-type]
    for number in range(250):
        log.record(record(number))
    assert not await log.ship()
    assert (len(log._kept), log.num_dropped) == (100, 150)
