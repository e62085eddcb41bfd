"""Batches that an operator pauses: no line starts, time goes on, nothing of it is lost."""

import asyncio
from dataclasses import replace

import pytest

from deployments.state.audit_log import AuditLog
from deployments.state.batches.work import BatchWork
from tests.contract.http.answers import USAGE, answer
from tests.contract.http.batch_calls import OTHER, finish, jsonl, line, lines_of, submit, until, until_done
from tests.contract.http.batches.conftest import on_both_databases
from tests.contract.http.conftest import run_batches
from tests.contract.http.operator.test_keys import ADMIN
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually

BATCHES = "/v1/organization/admin/batches"


@pytest.fixture
async def operator(world, batch_stores):
    world.audit = AuditLog(batch_stores.database)
    world.principal(requests_per_minute=10_000)
    world.principal(OTHER, key_id="key-2", account="acct-2", requests_per_minute=10_000)
    world.principal(ADMIN, key_id="key_admin", account="operators", is_admin=True)
    async with world.http(authorization=f"Bearer {ADMIN}") as http:
        yield http


async def change(operator, batch, name, status=200):
    told = await operator.post(f"{BATCHES}/{batch.id}/{name}")
    assert told.status_code == status, told.text
    return told.json()


@on_both_databases
async def test_lines_of_a_paused_batch_end_and_no_more_start_until_it_is_resumed(world, batch_stores, operator):
    gate, client = asyncio.Event(), world.client()
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    async with run_batches(world, batch_stores, max_lines_in_flight=4) as first:
        batch = await submit(client, jsonl(*map(line, range(40))))
        await eventually(lambda: len(world.chat.streams) == 4)
        shown = await change(operator, batch, "pause")
        assert (shown["status"], shown["project_id"]) == ("in_progress", "acct_1")
        assert (await change(operator, batch, "pause"))["paused_at"] == shown["paused_at"]
        (looked,) = (await operator.get(BATCHES, params={"project_id": "acct_1"})).json()["data"]
        assert looked["paused_at"] == shown["paused_at"]
        assert (await operator.get(BATCHES, params={"project_id": "acct-2"})).json()["data"] == []
        run = next(iter(first.coordinator._running))
        await asyncio.sleep(0.1)  # The worker looks every 20 ms.
        gate.set()
        await asyncio.wait({run})
        batch = await client.batches.retrieve(batch.id)
        assert (batch.status, batch.paused_at) == ("in_progress", shown["paused_at"])
        assert batch.request_counts.completed == len(world.chat.streams) == 4
        # Another account's batch runs meanwhile, though this one waits.
        other = world.client(OTHER)
        assert (await finish(other, await submit(other, jsonl(line(99))))).status == "completed"
    async with run_batches(world, batch_stores):  # Another coordinator leaves it alone too.
        other = world.client(OTHER)
        await finish(other, await submit(other, jsonl(line(99))))
        assert len(world.chat.streams) == 6
        assert (await change(operator, batch, "resume"))["paused_at"] is None
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed, batch.paused_at) == ("completed", 40, None)
    assert [one["custom_id"] for one in await lines_of(client, batch.output_file_id)] == [
        f"request-{number}" for number in range(40)
    ]
    assert len(world.chat.streams) == 42
    log = (await operator.get("/v1/organization/audit_logs", params={"resource_ids": batch.id})).json()["data"]
    assert sorted(one["type"] for one in log) == ["batch.paused", "batch.resumed"]
    assert {(one["actor"]["api_key"]["id"], one["project"]["id"]) for one in log} == {("key_admin", "acct_1")}


async def test_a_batch_paused_before_it_was_checked_waits_so(world, batch_stores, operator):
    client = world.client()
    batch = await submit(client, jsonl(line(0)))
    assert (await change(operator, batch, "pause"))["status"] == "validating"
    async with run_batches(world, batch_stores):
        other = world.client(OTHER)
        await finish(other, await submit(other, jsonl(line(99))))
        assert (await client.batches.retrieve(batch.id)).status == "validating"
        await change(operator, batch, "resume")
        assert (await finish(client, batch)).status == "completed"


async def test_the_time_of_a_paused_batch_goes_on(world, batch_stores, operator):
    client, uptime = world.client(), TestClock(0.0)
    stores = replace(batch_stores, work=BatchWork(batch_stores.batches, uptime))
    world.chat.script = lambda request: answer(request) if b"Question 0" in request.body else Script([asyncio.Event()])
    async with run_batches(world, stores, max_lines_in_flight=1) as batching:
        batch = await until_done(client, await submit(client, jsonl(line(0), line(1))), 1)
        await change(operator, batch, "pause")
        await eventually(lambda: batching.worker.limiter._waiting == {} and len(world.chat.streams) == 2)
        for advance in (uptime.advance, world.clock.advance):
            advance(86_400)
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("expired", 1, 1)


@pytest.mark.parametrize("by", ["account", "operator"])
async def test_a_paused_batch_can_be_cancelled(world, batch_stores, operator, by):
    client = world.client()
    batch = await submit(client, jsonl(line(0)))
    await change(operator, batch, "pause")
    if by == "operator":
        assert (await change(operator, batch, "cancel"))["status"] == "cancelling"
    else:
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
    refused = await change(operator, batch, "pause", 409)
    assert refused["error"]["message"] == "Cannot pause a batch with status 'cancelling'."
    async with run_batches(world, batch_stores):
        assert (await until(client, batch, "cancelled")).status == "cancelled"
    log = (await operator.get("/v1/organization/audit_logs")).json()["data"]
    events = ["batch.cancelled", "batch.paused"] if by == "operator" else ["batch.paused"]
    assert sorted(one["type"] for one in log) == events


async def test_what_has_ended_is_not_paused_and_only_operators_pause(world, batch_stores, operator):
    client = world.client()
    async with run_batches(world, batch_stores):
        batch = await finish(client, await submit(client, jsonl(line(0))))
    await change(operator, batch, "pause", 409)
    await change(operator, batch, "cancel", 409)
    async with world.http() as http:
        for method, path in (
            ("GET", BATCHES),
            *(("POST", f"{BATCHES}/{batch.id}/{name}") for name in ("pause", "resume", "cancel")),
        ):
            assert (await http.request(method, path)).status_code == 403
    for name in ("pause", "resume", "cancel"):
        assert (await operator.post(f"{BATCHES}/batch_none/{name}")).status_code == 404
    assert (await operator.get(BATCHES, params={"after": "batch_none"})).status_code == 404
    assert (await operator.get("/v1/organization/audit_logs")).json()["data"] == []
