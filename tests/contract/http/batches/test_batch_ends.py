"""Batches that end before all is done, and what is left of each when it has ended."""

import asyncio
from dataclasses import replace

import openai
import pytest
from sqlalchemy import select

from batch import run
from deployments.models.contract.engine import Usage
from deployments.state.batches.work import BatchWork
from deployments.state.config import DAY_S
from deployments.state.database.tables.content import batch_segments
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from tests.contract.http.answers import USAGE, answer
from tests.contract.http.batch_calls import CHAT, finish, jsonl, line, lines_of, submit, until, until_done, until_sealed
from tests.contract.http.batches.conftest import on_both_databases
from tests.contract.http.conftest import run_batches
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually


def times(batch) -> dict[str, int]:
    """Return the times of a batch, except those that it has from its creation."""
    told = batch.model_dump()
    given = {"created_at", "expires_at"}
    return {name: at for name, at in told.items() if name.endswith("_at") and name not in given and at is not None}


class Steps:
    """A batch of one line that takes each of its steps when it may, ten seconds after the last."""

    def __init__(self, world, monkeypatch) -> None:
        world.principal(requests_per_minute=10_000)
        self.client = world.client()
        self.uptime = TestClock(0.0)
        self._clock = world.clock
        self._answers, self._writes, merge = asyncio.Event(), asyncio.Event(), run.merge

        async def merge_when_told(*merged):
            await self._writes.wait()
            return await merge(*merged)

        monkeypatch.setattr(run, "merge", merge_when_told)
        world.chat.script = lambda request: Script([self._answers, *answer(request).steps], usage=USAGE)

    async def begin(self):
        """Return the batch when its line runs."""
        return await until(self.client, await submit(self.client, jsonl(line(0))), "in_progress")

    def pass_time(self, seconds: float = 10.0) -> None:
        self._clock.advance(seconds)
        self.uptime.advance(seconds)

    def let_it_answer(self) -> None:
        self.pass_time()
        self._answers.set()

    def let_it_write(self) -> None:
        self.pass_time()
        self._writes.set()


async def test_each_step_of_a_batch_is_told_with_its_time(world, batch_stores, monkeypatch):
    steps = Steps(world, monkeypatch)
    client = steps.client
    batch = await submit(client, jsonl(line(0)))
    began = batch.created_at
    assert (batch.status, batch.expires_at, times(batch)) == ("validating", began + 86_400, {})
    steps.pass_time()
    async with run_batches(world, batch_stores):
        batch = await until(client, batch, "in_progress")
        seen = {"in_progress_at": began + 10}
        assert times(batch) == seen
        steps.let_it_answer()
        batch = await until(client, batch, "finalizing")
        seen["finalizing_at"] = began + 20
        assert (times(batch), batch.output_file_id) == (seen, None)
        steps.let_it_write()
        batch = await finish(client, batch)
    assert (batch.status, times(batch)) == ("completed", {**seen, "completed_at": began + 30})


async def test_each_step_of_a_cancelled_batch_is_told_with_its_time(world, batch_stores, monkeypatch):
    steps = Steps(world, monkeypatch)
    client = steps.client
    async with run_batches(world, batch_stores):
        batch = await steps.begin()
        began = batch.created_at
        steps.pass_time()
        batch = await client.batches.cancel(batch.id)
        seen = {"in_progress_at": began, "cancelling_at": began + 10}
        assert (batch.status, times(batch)) == ("cancelling", seen)
        batch = await until_sealed(client, batch)
        seen["finalizing_at"] = began + 10
        assert (batch.status, times(batch)) == ("cancelling", seen)
        steps.let_it_write()
        batch = await finish(client, batch)
    assert (batch.status, times(batch)) == ("cancelled", {**seen, "cancelled_at": began + 20})


async def test_each_step_of_an_expired_batch_is_told_with_its_time(world, batch_stores, monkeypatch):
    steps = Steps(world, monkeypatch)
    client = steps.client
    stores = replace(batch_stores, work=BatchWork(batch_stores.batches, steps.uptime))
    async with run_batches(world, stores, lease_s=2):
        batch = await steps.begin()
        began = batch.created_at
        steps.pass_time(86_400)
        batch = await until(client, batch, "finalizing")
        seen = {"in_progress_at": began, "finalizing_at": began + 86_400}
        assert times(batch) == seen
        steps.let_it_write()
        batch = await finish(client, batch)
    assert (batch.status, times(batch)) == ("expired", {**seen, "expired_at": began + 86_410})


@on_both_databases
async def test_cancelling_keeps_what_is_done(client, world):
    world.chat.script = lambda request: (
        answer(request) if b"Question 1" in request.body else Script([asyncio.Event()], usage_when_aborted=Usage(1, 1))
    )
    batch = await submit(client, jsonl(*map(line, range(4))))
    batch = await until_done(client, batch, 1)
    batch = await client.batches.cancel(batch.id)
    assert batch.status == "cancelling"
    assert batch.cancelling_at is not None
    again = await client.batches.cancel(batch.id)
    assert again.status in ("cancelling", "cancelled")
    batch = await finish(client, batch)
    assert (batch.status, batch.cancelled_at is None) == ("cancelled", False)
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (4, 1, 3)
    assert batch.usage.total_tokens == USAGE.total_tokens
    output = await lines_of(client, batch.output_file_id)
    assert [one["custom_id"] for one in output] == [f"request-{number}" for number in range(4)]
    assert output[1]["response"]["status_code"] == 200
    for one in (output[0], output[2], output[3]):
        assert one["response"] is None
        assert one["error"]["code"] == "batch_cancelled"
    assert await lines_of(client, batch.error_file_id) == [output[0], output[2], output[3]]
    assert (await client.batches.cancel(batch.id)).status == "cancelled"
    await eventually(lambda: all(stream.ended.is_set() for stream in world.chat.streams))


@on_both_databases
async def test_expiry_keeps_what_is_done_and_says_so_of_the_rest(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    client, uptime = world.client(), TestClock(0.0)
    stores = replace(batch_stores, work=BatchWork(batch_stores.batches, uptime))
    world.chat.script = lambda request: answer(request) if b"Question 0" in request.body else Script([asyncio.Event()])
    file = await client.files.create(
        file=("in.jsonl", jsonl(line(0), line(1))),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 2_592_000},
    )
    batch = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    async with run_batches(world, stores, lease_s=2):
        batch = await until_done(client, batch, 1)
        uptime.advance(86_400)
        world.clock.advance(86_400)
        batch = await finish(client, batch)
    assert (batch.status, batch.expired_at is None) == ("expired", False)
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
    done, expired = await lines_of(client, batch.output_file_id)
    assert done["response"]["status_code"] == 200
    assert expired["response"] is None
    assert expired["error"] == {
        "code": "batch_expired",
        "message": "This request could not be executed before the completion window expired.",
    }


async def test_what_has_ended_cannot_be_cancelled(http, client):
    batch = await finish(client, await submit(client, jsonl(line(0))))
    refused = await http.post(f"/v1/batches/{batch.id}/cancel")
    assert refused.status_code == 409
    assert refused.headers["x-should-retry"] == "false"
    assert refused.json()["error"] == {
        "message": "Cannot cancel a batch with status 'completed'.",
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


@on_both_databases
async def test_segments_are_destroyed_when_a_batch_ends(client, world, batch_stores):
    batch = await finish(client, await submit(client, jsonl(line(0), line(1, model="none"))))
    async with batch_stores.database.read() as connection:
        assert (await connection.execute(select(batch_segments))).all() == []
    await eventually(lambda: len(world.objects.objects) == 3)
    output = await client.files.retrieve(batch.output_file_id)
    assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert output.expires_at == output.created_at + 7 * 86_400


@on_both_databases
async def test_an_input_lives_for_a_day_after_its_upload_and_after_the_last_batch_over_it(client, world):
    file = await client.files.create(file=("in.jsonl", jsonl(line(0))), purpose="batch")
    assert file.expires_at == file.created_at + DAY_S

    async def lives_until(at):
        async def does():
            return (await client.files.retrieve(file.id)).expires_at == at

        await eventually(does)

    world.clock.advance(1000)
    wrong = await client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    assert (await finish(client, wrong)).status == "failed"
    await lives_until(file.created_at + 1000 + DAY_S)
    world.clock.advance(2000)
    right = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert (await finish(client, right)).status == "completed"
    await lives_until(file.created_at + 3000 + DAY_S)
    world.clock.advance(DAY_S + 1)
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)


@pytest.mark.parametrize("seconds", [3600, 30 * 86_400])
async def test_an_uploader_may_shorten_the_life_of_an_input_and_not_lengthen_it(client, seconds):
    asked = {"anchor": "created_at", "seconds": seconds}
    file = await client.files.create(file=("in.jsonl", jsonl(line(0))), purpose="batch", expires_after=asked)
    assert file.expires_at == file.created_at + min(seconds, DAY_S)
    batch = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert (await finish(client, batch)).status == "completed"
    kept = await client.files.retrieve(file.id)
    assert seconds >= DAY_S or kept.expires_at == file.expires_at


async def test_a_stored_key_keeps_its_input_and_its_output_longer(client, world):
    world.principal(retention="stored", requests_per_minute=10_000)
    batch = await finish(client, await submit(client, jsonl(line(0))))
    assert (await client.files.retrieve(batch.input_file_id)).id == batch.input_file_id
    output = await client.files.retrieve(batch.output_file_id)
    assert output.expires_at == output.created_at + 30 * 86_400
    asked = await submit(client, jsonl(line(0)), output_expires_after={"anchor": "created_at", "seconds": 3600})
    asked = await finish(client, asked)
    output = await client.files.retrieve(asked.output_file_id)
    assert output.expires_at == output.created_at + 3600


async def test_an_input_that_another_batch_needs_outlives_the_first(client, world):
    gate = asyncio.Event()
    file = await client.files.create(file=("in.jsonl", jsonl(line(0))), purpose="batch")
    first = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    second = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    gate.set()
    for batch in (first, second):
        assert (await finish(client, batch)).status == "completed"


@on_both_databases
async def test_revoking_a_key_cancels_its_batches(world, batch_stores):
    keys = KeyStore(batch_stores.database, b"p" * 32)
    key, _ = await keys.create(NewKey(account="acct-1", tier="standard"))
    world.principal(key_id=key.key_id, requests_per_minute=10_000)
    world.chat.script = lambda request: Script([asyncio.Event()])
    async with run_batches(world, batch_stores, lease_s=2):
        client = world.client()
        batch = await submit(client, jsonl(line(0)))
        await eventually(lambda: world.chat.streams)
        await keys.revoke(key.key_id)
        batch = await finish(client, batch)
    assert batch.status == "cancelled"
