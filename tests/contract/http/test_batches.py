"""Batches with OpenAI's client, from the upload of the input to the download of the output."""

import asyncio
import json
from dataclasses import replace

import openai
import orjson
import pytest
from sqlalchemy import select, update

from batch import run
from batch.fleet import FleetDown, LocalFleet
from deployments.models.engine import Usage
from deployments.models.errors import EngineDied, Overloaded, RequestRejected
from deployments.state.batch_work import BatchWork
from deployments.state.key_store import KeyStore
from deployments.state.keys import NewKey
from deployments.state.tables import batch_segments, batches, usage
from deployments.state.usage import UsageStore
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, USAGE, answer
from tests.contract.http.conftest import run_batches
from tests.contract.state.conftest import postgres_server, postgres_url
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually

__all__ = ["postgres_server", "postgres_url"]

CHAT = "/v1/chat/completions"
OTHER = "sk-manta-other-0123456789abcdefghijklmnopqrs"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(number, url=CHAT, model=MODEL, **overrides):
    body = {"model": model, "messages": [{"role": "user", "content": f"Question {number}"}]}
    return {"custom_id": f"request-{number}", "method": "POST", "url": url, "body": body, **overrides}


def jsonl(*lines) -> bytes:
    return b"".join(orjson.dumps(one) + b"\n" for one in lines)


async def submit(client, content, endpoint=CHAT, **more):
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    return await client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more)


async def until(client, batch, *statuses, timeout_s=60):
    async with asyncio.timeout(timeout_s):
        while batch.status not in statuses:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def finish(client, batch, timeout_s=60):
    return await until(client, batch, *ENDED, timeout_s=timeout_s)


async def lines_of(client, file_id):
    content = (await client.files.content(file_id)).content
    assert content.endswith(b"\n")
    return [json.loads(one) for one in content.splitlines()]


@pytest.fixture(params=["sqlite", "postgresql"])
def files_url(request, tmp_path):
    """The same suite over each kind of database."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/files.db"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def client(world, batching) -> openai.AsyncOpenAI:
    world.principal(requests_per_minute=100_000)
    return world.client()


@pytest.fixture
async def http(world, batching):
    async with world.http() as http:
        yield http


async def test_a_batch_runs_from_upload_to_download(client, world):
    batch = await submit(client, jsonl(*map(line, range(20))), metadata={"for": "a test"})
    assert batch.id.startswith("batch_")
    assert (batch.status, batch.endpoint, batch.completion_window) == ("validating", CHAT, "24h")
    assert batch.expires_at == batch.created_at + 86_400
    assert batch.metadata == {"for": "a test"}
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (0, 0, 0)
    batch = await finish(client, batch)
    assert batch.status == "completed"
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (20, 20, 0)
    assert batch.error_file_id is None
    assert batch.errors is None
    now = int(world.clock())
    assert (batch.in_progress_at, batch.finalizing_at, batch.completed_at) == (now, now, now)
    assert (batch.failed_at, batch.expired_at, batch.cancelling_at, batch.cancelled_at) == (None,) * 4
    assert batch.usage.input_tokens == 20 * USAGE.prompt_tokens
    assert batch.usage.output_tokens == 20 * USAGE.completion_tokens
    assert batch.usage.total_tokens == 20 * USAGE.total_tokens
    assert batch.usage.input_tokens_details.cached_tokens == 20 * USAGE.cached_tokens
    output = await lines_of(client, batch.output_file_id)
    assert batch.output_file_id.startswith("file_output_")
    assert [one["custom_id"] for one in output] == [f"request-{number}" for number in range(20)]
    assert all(list(one) == ["id", "custom_id", "response", "error"] for one in output)
    assert len({one["id"] for one in output}) == 20
    first = output[0]
    assert first["id"].startswith("batch_req_")
    assert first["error"] is None
    assert first["response"]["status_code"] == 200
    assert first["response"]["request_id"].startswith("req_")
    assert first["response"]["body"]["object"] == "chat.completion"
    assert first["response"]["body"]["choices"][0]["message"]["content"] == "Hello there!"


async def test_every_key_of_a_batch_is_always_there(http, client):
    batch = await submit(client, jsonl(line(0)))
    shown = (await http.get(f"/v1/batches/{batch.id}")).json()
    assert list(shown) == [
        "id",
        "object",
        "endpoint",
        "model",
        "errors",
        "input_file_id",
        "completion_window",
        "status",
        "output_file_id",
        "error_file_id",
        "created_at",
        "in_progress_at",
        "expires_at",
        "finalizing_at",
        "completed_at",
        "failed_at",
        "expired_at",
        "cancelling_at",
        "cancelled_at",
        "request_counts",
        "usage",
        "metadata",
    ]
    assert shown["metadata"] is None


async def test_lines_meet_the_engine_as_requests_over_http_do(client, world):
    await finish(client, await submit(client, jsonl(line(0))))
    await client.chat.completions.create(**line(0)["body"])
    batched, online = world.chat.requests
    assert json.loads(batched.body) == json.loads(online.body)
    assert batched.cache_salt == online.cache_salt
    assert (batched.priority, online.priority) == (10, 0)
    assert batched.stream is False


async def test_models_and_operations_mix(client, world):
    embed = {"model": EMBEDDING_MODEL, "input": ["a", "b"]}
    batch = await submit(client, jsonl(line(0, url="/v1/embeddings", body=embed)), endpoint="/v1/embeddings")
    batch = await finish(client, batch)
    (one,) = await lines_of(client, batch.output_file_id)
    assert [vector["index"] for vector in one["response"]["body"]["data"]] == [0, 1]
    legacy = {"model": MODEL, "prompt": "x"}
    batch = await finish(
        client, await submit(client, jsonl(line(0, url="/v1/completions", body=legacy)), endpoint="/v1/completions")
    )
    (one,) = await lines_of(client, batch.output_file_id)
    assert one["response"]["body"]["object"] == "text_completion"
    batch = await finish(client, await submit(client, jsonl(line(0), line(1, model="chat"))))
    assert batch.request_counts.completed == 2


async def test_failed_lines_stand_in_both_files_and_in_their_place(client, world):
    world.chat.script = lambda request: (
        Script([RequestRejected("No.", "messages", "invalid_value")])
        if b"Question 3" in request.body
        else answer(request)
    )
    broken = line(2)
    broken["body"]["temperature"] = 9
    batch = await finish(client, await submit(client, jsonl(line(0), line(1, model="none"), broken, line(3), line(4))))
    assert batch.status == "completed"
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (5, 2, 3)
    output = await lines_of(client, batch.output_file_id)
    assert [one["response"]["status_code"] for one in output] == [200, 404, 400, 400, 200]
    assert output[1]["response"]["body"]["error"]["code"] == "model_not_found"
    assert output[2]["response"]["body"]["error"]["code"] == "decimal_above_max_value"
    assert output[3]["response"]["body"]["error"]["message"] == "No."
    assert await lines_of(client, batch.error_file_id) == output[1:4]


async def test_a_key_s_scopes_hold_for_each_line(client, world):
    world.principal(models=(MODEL,), operations=frozenset({"files", "batches", "chat"}), requests_per_minute=10_000)
    batch = await finish(client, await submit(client, jsonl(line(0), line(1, model=EMBEDDING_MODEL))))
    output = await lines_of(client, batch.output_file_id)
    assert [one["response"]["status_code"] for one in output] == [200, 404]
    with pytest.raises(openai.PermissionDeniedError):
        await submit(client, jsonl(line(0)), endpoint="/v1/embeddings")


async def test_a_full_replica_is_asked_again_and_no_line_fails_of_it(client, world, batching, monkeypatch):
    refused = set()

    async def at_once(seconds):
        return None

    monkeypatch.setattr(batching.worker._calls, "_sleep", at_once)

    def script(request):
        if request.body not in refused:
            refused.add(request.body)
            return Script([Overloaded("full", 0.01)])
        return answer(request)

    world.chat.script = script
    batch = await finish(client, await submit(client, jsonl(*map(line, range(30)))))
    assert batch.request_counts.completed == 30
    assert len(world.chat.requests) == 60


async def test_a_replica_that_dies_is_asked_three_times(client, world, batching, monkeypatch):
    async def at_once(seconds):
        return None

    monkeypatch.setattr(batching.worker._calls, "_sleep", at_once)
    world.chat.script = lambda request: Script([EngineDied("gone")])
    batch = await finish(client, await submit(client, jsonl(line(0))))
    assert len(world.chat.requests) == 3
    (one,) = await lines_of(client, batch.error_file_id)
    assert one["response"]["status_code"] == 503
    assert batch.usage.total_tokens == 0


async def test_a_bug_is_that_line_s_500_and_says_nothing(client, world, caplog):
    world.chat.script = lambda request: Script([ValueError("Kanarienvogel")])
    batch = await finish(client, await submit(client, jsonl(line(0))))
    (one,) = await lines_of(client, batch.error_file_id)
    assert one["response"]["status_code"] == 500
    assert "Kanarienvogel" not in caplog.text
    assert "Kanarienvogel" not in str(one)


async def test_usage_is_counted_once_by_day_and_model(client, batch_stores):
    batch = await finish(client, await submit(client, jsonl(line(0), line(1), line(2, model="none"))))
    async with batch_stores.database.read() as connection:
        rows = {row["model"]: row for row in (await connection.execute(select(usage))).mappings()}
    assert rows[MODEL]["num_requests"] == 2
    assert rows[MODEL]["prompt_tokens"] == batch.usage.input_tokens == 2 * USAGE.prompt_tokens
    assert rows[MODEL]["completion_tokens"] == batch.usage.output_tokens
    assert (rows[""]["num_requests"], rows[""]["num_errors"]) == (1, 1)


async def test_lines_stand_in_the_request_log_and_the_metrics_as_requests_do(client, world, batch_stores, batching):
    tries = {b"Question 1": 2}

    def script(request):
        for mark, left in tries.items():
            if mark in request.body and left:
                tries[mark] -= 1
                return Script([Overloaded("full", 0.001)])
        return answer(request)

    world.chat.script = script
    batch = await finish(client, await submit(client, jsonl(line(0), line(1), line(2, model="none"))))
    output = await lines_of(client, batch.output_file_id)
    records = await UsageStore(batch_stores.database).last_requests("key_1")
    told = {record.request_id: record for record in records}
    assert len(records) == 3
    assert told.keys() == {one["response"]["request_id"] for one in output}
    assert {(one.batch_id, one.method, one.route, one.stream) for one in records} == {(batch.id, "POST", CHAT, False)}
    first, retried, refused = (told[one["response"]["request_id"]] for one in output)
    assert (first.model, first.status, first.code, first.account) == (MODEL, 200, None, "acct_1")
    used = (USAGE.prompt_tokens, USAGE.completion_tokens, USAGE.cached_tokens)
    for one in (first, retried):
        assert (one.prompt_tokens, one.completion_tokens, one.cached_tokens) == used
    assert (refused.model, refused.status, refused.code) == (None, 404, "model_not_found")
    assert "Question" not in str(records)
    assert sorted(one.request_id for one in batching.counted) == sorted(told)
    for record in batching.counted:
        world.metrics.end(record)
    page = world.metrics.render().decode()
    labels = f'code="",model="{MODEL}",route="batch:{CHAT}",status="200",tier="standard"'
    assert f"manta_requests_total{{{labels}}} 2.0" in page


async def test_batches_spend_nothing_of_the_minute(client, world):
    before = world.gatekeeper.quota(world.gatekeeper.principals[next(iter(world.gatekeeper.principals))])
    await finish(client, await submit(client, jsonl(*map(line, range(10)))))
    after = world.gatekeeper.quota(world.gatekeeper.principals[next(iter(world.gatekeeper.principals))])
    assert after == before


async def test_progress_shows_while_a_batch_runs(client, world):
    gate = asyncio.Event()
    world.chat.script = lambda request: (
        Script([gate, *answer(request).steps], usage=USAGE) if b"Question 9" in request.body else answer(request)
    )
    batch = await submit(client, jsonl(*map(line, range(10))))
    async with asyncio.timeout(5):
        while batch.request_counts.completed < 9:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    assert batch.status == "in_progress"
    assert batch.usage.total_tokens == 9 * USAGE.total_tokens
    gate.set()
    assert (await finish(client, batch)).request_counts.completed == 10


async def test_cancelling_keeps_what_is_done(client, world):
    world.chat.script = lambda request: (
        answer(request) if b"Question 1" in request.body else Script([asyncio.Event()], usage_when_aborted=Usage(1, 1))
    )
    batch = await submit(client, jsonl(*map(line, range(4))))
    async with asyncio.timeout(5):
        while batch.request_counts.completed < 1:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    batch = await client.batches.cancel(batch.id)
    assert batch.status == "cancelling"
    assert batch.cancelling_at is not None
    again = await client.batches.cancel(batch.id)
    assert again.status in ("cancelling", "cancelled")
    batch = await finish(client, batch, timeout_s=5)
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
        async with asyncio.timeout(30):
            while batch.request_counts.completed < 1:
                await asyncio.sleep(0.01)
                batch = await client.batches.retrieve(batch.id)
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


async def test_segments_and_ephemeral_input_are_destroyed_when_a_batch_ends(client, world, batch_stores):
    batch = await finish(client, await submit(client, jsonl(line(0), line(1, model="none"))))
    async with batch_stores.database.read() as connection:
        assert (await connection.execute(select(batch_segments))).all() == []
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(batch.input_file_id)
    await eventually(lambda: len(world.objects.objects) == 2)
    output = await client.files.retrieve(batch.output_file_id)
    assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")
    assert output.expires_at == output.created_at + 7 * 86_400


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


async def test_a_strict_key_runs_no_batches(client, world):
    world.principal(retention="strict")
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await client.batches.create(input_file_id="file-x", endpoint=CHAT, completion_window="24h")
    assert refused.value.code == "retention_policy"


async def test_a_file_of_another_account_is_told_as_a_missing_one(client, world):
    world.principal(OTHER, key_id="key-2", account="acct-2", requests_per_minute=10_000)
    theirs = await world.client(OTHER).files.create(file=("in.jsonl", jsonl(line(0))), purpose="batch")
    told = []
    for file_id in (theirs.id, "file-none"):
        batch = await client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h")
        (error,) = (await finish(client, batch)).errors.data
        told.append((error.code, error.param, error.line, error.message.replace(file_id, "ID")))
    assert told[0] == told[1]
    assert told[0][:3] == ("invalid_request", "file_id", None)
    assert told[0][3] == "Cannot find file ID, or organization org-one does not have access to it."
    assert (await world.client(OTHER).files.retrieve(theirs.id)).id == theirs.id


async def test_the_eleventh_unfinished_batch_is_refused(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    client = world.client()
    batches = [await submit(client, jsonl(line(0))) for _ in range(10)]
    with pytest.raises(openai.RateLimitError) as refused:
        await submit(client, jsonl(line(0)))
    assert refused.value.code == "batch_limit_exceeded"
    assert "10 batches" in refused.value.message
    async with run_batches(world, batch_stores):
        await finish(client, batches[0])
        assert (await submit(client, jsonl(line(0)))).status == "validating"


async def test_the_tokens_of_unfinished_batches_are_bounded(world, batch_stores):
    world.principal(requests_per_minute=10_000, tier="free")
    async with run_batches(world, batch_stores, enqueued_tokens={"free": 100}):
        client = world.client()
        assert (await finish(client, await submit(client, jsonl(line(0))))).status == "completed"
        batch = await finish(client, await submit(client, jsonl(*map(line, range(10)))))
    assert batch.status == "failed"
    assert batch.errors.data[0].code == "token_limit_exceeded"


async def test_lists_are_paged_and_belong_to_their_account(client, world):
    ids = []
    for _ in range(5):
        ids.append((await finish(client, await submit(client, jsonl(line(0))))).id)
        world.clock.advance(1)
    assert [batch.id async for batch in client.batches.list(limit=2)] == ids[::-1]
    world.principal(OTHER, key_id="key-2", account="acct-2")
    other = world.client(OTHER)
    assert (await other.batches.list()).data == []
    for attempt in (other.batches.retrieve, other.batches.cancel):
        with pytest.raises(openai.NotFoundError) as theirs:
            await attempt(ids[0])
        with pytest.raises(openai.NotFoundError) as missing:
            await attempt("batch_none")
        assert theirs.value.message.replace(ids[0], "batch_none") == missing.value.message
        assert "No batch found with id 'batch_none'." in missing.value.message


async def test_stores_that_are_away_for_a_while_only_delay_a_batch(client, world):
    gate = asyncio.Event()
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    batch = await submit(client, jsonl(*map(line, range(5))))
    await eventually(lambda: len(world.chat.streams) == 5)
    world.objects.is_away = True
    gate.set()
    await asyncio.sleep(0.3)
    assert (await client.batches.retrieve(batch.id)).status == "in_progress"
    world.objects.is_away = False
    batch = await finish(client, batch)
    assert batch.request_counts.completed == 5
    assert len(await lines_of(client, batch.output_file_id)) == 5


class CrashingFleet(LocalFleet):
    """A worker that dies whenever it meets a certain line, with whatever else it was doing."""

    def __init__(self, worker, *poison: int) -> None:
        super().__init__(worker)
        self.poison = set(poison)
        self.num_deaths = 0

    async def run(self, job, places):
        for start in range(0, len(places), 4):
            part = places[start : start + 4]
            if self.poison & {place.line for place in part}:
                self.num_deaths += 1
                return
            await super().run(job, part)

    async def run_alone(self, job, place):
        await self.run(job, [place])


@pytest.mark.parametrize("poison", [(0,), (7,), (19,), (3, 4, 18)])
async def test_a_line_that_ends_its_worker_gets_a_500_after_three_tries_alone(world, batch_stores, poison):
    world.principal(requests_per_minute=10_000)
    async with run_batches(world, batch_stores, fleet=lambda worker: CrashingFleet(worker, *poison)) as batching:
        client = world.client()
        batch = await finish(client, await submit(client, jsonl(*map(line, range(20)))))
        deaths = batching.fleet.num_deaths
    assert batch.status == "completed"
    output = await lines_of(client, batch.output_file_id)
    assert [one["response"]["status_code"] for one in output] == [500 if n in poison else 200 for n in range(20)]
    assert [one["custom_id"] for one in output] == [f"request-{number}" for number in range(20)]
    assert output[poison[0]]["response"]["body"]["error"]["type"] == "server_error"
    assert (batch.request_counts.completed, batch.request_counts.failed) == (20 - len(poison), len(poison))
    assert deaths >= 3 * len(poison)


async def test_a_fleet_that_is_down_blames_no_line(world, batch_stores, monkeypatch):
    class Down(LocalFleet):
        num_refusals = 0

        async def run(self, job, places):
            self.num_refusals += 1
            if self.num_refusals < 6:
                raise FleetDown("No room for a worker.")
            await super().run(job, places)

    monkeypatch.setattr(run, "_FLEET_WAIT_S", 0.01)
    world.principal(requests_per_minute=10_000)
    async with run_batches(world, batch_stores, fleet=Down):
        client = world.client()
        batch = await finish(client, await submit(client, jsonl(line(0), line(1))))
    assert (batch.status, batch.request_counts.completed) == ("completed", 2)


async def test_a_full_disk_is_waited_out_and_nothing_half_done_is_seen(client, world):
    file = await client.files.create(file=("in.jsonl", jsonl(*map(line, range(5)))), purpose="batch")
    world.objects.room_bytes = sum(map(len, world.objects.objects.values())) + 10
    batch = await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    await eventually(lambda: len(world.chat.streams) == 5)
    await asyncio.sleep(0.3)
    batch = await client.batches.retrieve(batch.id)
    assert (batch.status, batch.request_counts.completed, batch.output_file_id) == ("in_progress", 0, None)
    assert [one.id for one in (await client.files.list()).data] == [file.id]
    world.objects.room_bytes = None
    batch = await finish(client, batch)
    assert batch.request_counts.completed == 5
    assert len(world.chat.streams) == 5


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


async def test_lines_may_ask_for_responses(client):
    body = {"model": MODEL, "input": "Hi."}
    lines = [line(0, url="/v1/responses", body=body), line(1, url="/v1/responses", body={**body, "background": True})]
    batch = await finish(client, await submit(client, jsonl(*lines), endpoint="/v1/responses"))
    done, refused = await lines_of(client, batch.output_file_id)
    assert done["response"]["status_code"] == 200
    assert done["response"]["body"]["object"] == "response"
    assert done["response"]["body"]["status"] == "completed"
    assert refused["response"]["status_code"] == 400
    assert refused["response"]["body"]["error"]["param"] == "background"
    stored = await client.responses.retrieve(done["response"]["body"]["id"])
    assert stored.output_text == "Hello there!"


async def test_accounts_share_the_room_however_much_each_has_to_do(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    world.principal(OTHER, key_id="key-2", account="acct-2", requests_per_minute=10_000)
    both_run, script = asyncio.Event(), world.chat.script

    def answer_once_both_run(request):
        quick = script(request)
        return replace(quick, steps=[both_run, *quick.steps])

    world.chat.script = answer_once_both_run
    async with run_batches(world, batch_stores, max_lines_in_flight=2) as batching:
        busy, quiet = world.client(), world.client(OTHER)
        first = [await submit(busy, jsonl(*map(line, range(300)))) for _ in range(5)]
        await eventually(lambda: len(world.chat.streams) == 2)
        small = await submit(quiet, jsonl(*map(line, range(10))))
        await eventually(lambda: "acct-2" in batching.worker.gate._waiting)
        both_run.set()
        assert (await finish(quiet, small)).request_counts.completed == 10
        for batch in first:
            assert (await finish(busy, batch)).request_counts.completed == 300
    salts = [request.cache_salt for request in world.chat.requests]
    theirs = [number for number, salt in enumerate(salts) if salt != salts[0]]
    assert len(theirs) == 10
    assert theirs[-1] - theirs[0] < 60  # Every second line was theirs, or nearly.
    assert theirs[-1] < 300  # They waited for none of the batches that came before.


async def test_a_batch_that_cannot_be_read_stops_no_other(world, batch_stores, caplog):
    world.principal(requests_per_minute=10_000)
    client = world.client()
    broken = await submit(client, jsonl(line(0)), metadata={"a": "b"})
    async with batch_stores.database.write() as connection:
        spoilt = update(batches).where(batches.c.batch_id == broken.id).values(sealed_metadata=b"x" * 40)
        await connection.execute(spoilt)
    async with run_batches(world, batch_stores):
        assert (await finish(client, await submit(client, jsonl(line(0))))).status == "completed"
    assert "SealBroken" in caplog.text
