"""Usage as it is read: sums by period and group, latencies, the request log in pages, the audit log."""

import asyncio
import time

import pytest

from deployments.state.audit_log import Actor, AuditFilter, AuditLog, UnknownEntry
from deployments.state.database.connection import Database
from deployments.state.identity.key_store import KeyRefused, KeyStore
from deployments.state.identity.keys import KeyChange, NewKey
from deployments.state.usage import request_log
from deployments.state.usage.reading import UsageFilter, UsageReader
from deployments.state.usage.request_log import RequestFilter, RequestLogReader, UnknownCursor
from deployments.state.usage.store import UsageStore
from tests.contract.state.records import NOON, record

DAY_S = 86_400


async def test_sums_are_told_apart_by_what_is_asked_for(database: Database) -> None:
    records = [
        record(1, input_cost=70, cached_cost=7, output_cost=700),
        record(2, at=NOON + 59.9, key_id="key_2"),
        record(3, at=NOON + 60, route="/v1/responses", file_search_calls=2, web_search_calls=3, code_sessions=1),
        record(4, at=NOON + 3_600, route="/v1/embeddings", model="acme/vectors"),
        record(5, at=NOON + DAY_S, account="other", key_id="key_3", service_tier="flex", discounted_tokens=7),
        record(6, status=429, model="acme/small", prompt_tokens=0, completion_tokens=0, cached_tokens=0),
        record(7, key_id=None, account=None, status=401),
    ]
    await UsageStore(database).add(records)
    reader = UsageReader(database)
    minutes = await reader.buckets("1m", NOON, NOON + 120)
    assert [(one.start, one.num_requests, one.prompt_tokens, one.cost) for one in minutes] == [
        (NOON, 3, 20, 777),
        (NOON + 60, 1, 10, 0),
    ]
    by_key = await reader.buckets("1m", NOON + 59, NOON + 60, group_by=("key_id",))
    assert [(one.key_id, one.model, one.num_requests) for one in by_key] == [("key_1", None, 2), ("key_2", None, 1)]
    day = NOON - NOON % DAY_S
    days = await reader.buckets("1d", NOON, NOON + 2 * DAY_S, group_by=("operation", "service_tier", "account"))
    assert [(one.start, one.account, one.operation, one.service_tier, one.num_requests) for one in days] == [
        (day, "acme", "chat", "", 3),
        (day, "acme", "embeddings", "", 1),
        (day, "acme", "responses", "", 1),
        (day + DAY_S, "other", "chat", "flex", 1),
    ]
    (ran,) = await reader.totals("1h", NOON, NOON + 1, where=UsageFilter(accounts=("acme",), has_run=True))
    assert (ran.num_requests, ran.num_rate_limited, ran.file_search_calls, ran.web_search_calls) == (3, 0, 2, 3)
    (refused,) = await reader.totals("1h", NOON, NOON + 1, where=UsageFilter(models=("",)))
    assert (refused.num_requests, refused.num_errors, refused.num_rate_limited) == (1, 1, 1)
    (nothing,) = await reader.totals("1d", 0, DAY_S)
    assert (nothing.num_requests, nothing.cost) == (0, 0)


async def test_a_try_that_is_replaced_is_taken_out_of_sums_and_latencies(database: Database) -> None:
    store, reader = UsageStore(database), UsageReader(database)
    await store.add([record(1, status=499, total_s=9.0, code_sessions=1), record(2, total_s=0.5)])
    await store.add([record(1, at=NOON + 1, total_s=0.5)])
    (total,) = await reader.totals("1h", NOON, NOON + 1)
    assert (total.num_requests, total.num_errors, total.code_sessions) == (2, 0, 0)
    (whole,) = [one for one in await reader.latency("1d", NOON, NOON + 1) if one.metric == "total"]
    assert (whole.model, whole.num_requests) == ("acme/small", 2)
    assert whole.p99_s == pytest.approx(0.5, rel=0.03)


async def test_latencies_are_those_of_answers_by_model_and_account(database: Database) -> None:
    store, reader = UsageStore(database), UsageReader(database)
    await store.add([record(number, ttft_s=number / 100, total_s=number / 10) for number in range(1, 101)])
    await store.add([record(101, account="other", model="acme/large", ttft_s=5.0, stream=False, total_s=5.0)])
    await store.add([record(102, status=503, total_s=60.0)])
    found = {(one.model, one.metric): one for one in await reader.latency("1h", NOON, NOON + 1)}
    assert found.keys() == {("acme/small", "ttft"), ("acme/small", "total"), ("acme/large", "total")}
    small = found["acme/small", "total"]
    assert [small.num_requests, small.p50_s, small.p95_s, small.p99_s] == pytest.approx([100, 5.0, 9.5, 9.9], rel=0.03)
    assert {one.model for one in await reader.latency("1h", NOON, NOON + 1, accounts=("other",))} == {"acme/large"}
    (together,) = await reader.latency("1h", NOON - 3_600, NOON + 1, accounts=("other",), by_model=False, as_one=True)
    assert (together.start, together.model, together.num_requests) == (NOON - 3_600, None, 1)


async def test_writers_at_once_lose_nothing_and_do_not_block_each_other(database: Database) -> None:
    store = UsageStore(database)
    models = [f"acme/{letter}" for letter in "abcdef"]

    async def write(writer: int) -> None:
        for turn in range(10):
            some = [
                record(f"{writer}-{turn}-{model}", model=model)  # type: ignore[arg-type]
                for model in (models if writer % 2 else models[::-1])
            ]
            await store.add(some)

    await asyncio.gather(*(write(writer) for writer in range(4)))
    (total,) = await UsageReader(database).totals("1d", NOON, NOON + 1)
    assert (total.num_requests, total.prompt_tokens) == (240, 2_400)


async def test_the_request_log_is_read_in_pages_and_by_what_is_asked_for(database: Database) -> None:
    records = [record(number, at=NOON + number // 3) for number in range(10)]
    records[4].status, records[4].code = 429, "rate_limit_exceeded"
    records[5].account, records[6].model = "other", "acme/large"
    await UsageStore(database).add(records)
    reader = RequestLogReader(database)
    seen, cursor = [], None
    while True:
        page = await reader.page(RequestFilter(), 4, cursor)
        seen += page.records
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == sorted(records, key=lambda one: (one.at, one.request_id), reverse=True)
    assert [one async for page in reader.every(RequestFilter()) for one in page] == seen

    async def ids(**where: object) -> list[str]:
        return [one.request_id for one in (await reader.page(RequestFilter(**where), 100)).records]  # type: ignore[arg-type]

    assert await ids(account="other") == ["req_5"]
    assert await ids(model="acme/large") == ["req_6"]
    assert await ids(is_error=True) == await ids(status=429) == await ids(code="rate_limit_exceeded") == ["req_4"]
    assert await ids(since=NOON + 1, until=NOON + 2, is_error=False) == ["req_5", "req_3"]
    assert await ids(request_id="req_9") == ["req_9"]
    assert await ids(is_batch=True) == await ids(batch_id="batch_1") == await ids(operation="embeddings") == []
    assert len(await ids(operation="chat", is_batch=False)) == 10
    for wrong in ("", "x", "AAAA", "bmFuIHg\0"):
        with pytest.raises(UnknownCursor):
            await reader.page(RequestFilter(), 4, wrong)


async def test_changes_of_keys_are_in_the_audit_log_with_who_made_them(database: Database) -> None:
    keys, log = KeyStore(database, b"p" * 32), AuditLog(database)
    admin = Actor("api_key", "key_admin")
    before = time.time()
    key, secret = await keys.create(NewKey(account="acme", tier="standard"), by=admin)
    await keys.limit(key.key_id, KeyChange(tier="free"), by=admin)
    with pytest.raises(KeyRefused):
        await keys.limit(key.key_id, KeyChange(expires_at=1.0), by=admin)
    _, other = await keys.rotate(key.key_id, 60.0, by=Actor("command_line", "root"))
    for _ in range(2):
        await keys.revoke(key.key_id)
    entries, has_more = await log.page(AuditFilter(), 10)
    assert [(one.event, one.actor.kind, one.actor.id) for one in entries] == [
        ("api_key.deleted", "service", "manta"),
        ("api_key.updated", "command_line", "root"),
        ("api_key.updated", "api_key", "key_admin"),
        ("api_key.created", "api_key", "key_admin"),
        ("project.created", "api_key", "key_admin"),
    ]
    assert {(one.target, one.account) for one in entries} == {(key.key_id, "acme"), ("acme", "acme")}
    await keys.create(NewKey(account="acme", tier="standard"))
    assert len((await log.page(AuditFilter(events=("project.created",)), 10))[0]) == 1
    where = AuditFilter(targets=(key.key_id, "acme"))
    assert entries[2].details == {"tier": "free"}
    assert all(before <= one.at <= time.time() for one in entries)
    assert secret not in repr(entries)
    assert other not in repr(entries)

    ids = [one.entry_id for one in entries]
    assert not has_more
    first, has_more = await log.page(where, 3)
    assert ([one.entry_id for one in first], has_more) == (ids[:3], True)
    rest, has_more = await log.page(where, 3, after=ids[2])
    assert ([one.entry_id for one in rest], has_more) == (ids[3:], False)
    back, has_more = await log.page(where, 1, before=ids[2])
    assert ([one.entry_id for one in back], has_more) == (ids[1:2], True)
    named, _ = await log.page(AuditFilter(events=("api_key.updated",), actor_ids=("root",)), 9)
    assert [one.entry_id for one in named] == [ids[1]]
    assert await log.page(AuditFilter(until=before - 1), 9) == ([], False)
    with pytest.raises(UnknownEntry):
        await log.page(AuditFilter(), 9, after="audit_log-none")


async def test_the_last_use_of_accounts_and_keys_is_that_of_their_newest_request(database: Database) -> None:
    await UsageStore(database).add(
        [record(1), record(2, at=NOON + 5), record(3, at=NOON + 3, key_id="key_2"), record(4, account="other")]
    )
    log = RequestLogReader(database)
    assert await log.last_used("account", ["acme", "none", "a'b"]) == {"acme": NOON + 5}
    assert await log.last_used("key_id", ["key_1", "key_2"]) == {"key_1": NOON + 5, "key_2": NOON + 3}
    assert await log.last_used("key_id", []) == {}
    many = await log.last_used("key_id", [f"key_{number}" for number in range(1_000)])
    assert set(many) == {"key_1", "key_2"}


async def test_failures_are_counted_by_code_status_and_model_the_most_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = {"status": 503, "code": "overloaded"}
    await UsageStore(database).add(
        [
            record(1),
            record(2, **failed),
            record(3, at=NOON + 9, **failed),
            record(4, model="acme/large", **failed),
            record(5, status=404, code=None, model=None),
            record(6, at=NOON - 1, status=500, code="engine_died"),
        ]
    )
    found = await RequestLogReader(database).failures(NOON, 10)
    assert [(one.code, one.status, one.model, one.num_requests) for one in found] == [
        ("overloaded", 503, "acme/small", 2),
        (None, 404, None, 1),
        ("overloaded", 503, "acme/large", 1),
    ]
    assert found[0].last_at == NOON + 9
    assert len(await RequestLogReader(database).failures(NOON, 1)) == 1
    monkeypatch.setattr(request_log, "NUM_SEARCHED", 1)
    assert [one.last_at for one in await RequestLogReader(database).failures(NOON, 10)] == [NOON + 9]
