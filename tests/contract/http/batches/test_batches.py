"""Batches with OpenAI's client, from the upload of the input to the download of the output."""

import asyncio
import json
from dataclasses import replace

import openai
import pytest

from deployments.models.contract.errors import Overloaded, RequestRejected
from deployments.state.identity.tiers import Tiers
from deployments.state.usage.store import UsageStore
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, USAGE, answer
from tests.contract.http.batch_calls import CHAT, OTHER, finish, jsonl, line, lines_of, submit
from tests.contract.http.batches.conftest import on_both_databases
from tests.contract.http.conftest import run_batches
from tests.twins.engine import Script
from tests.waiting import eventually


@on_both_databases
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
        "paused_at",
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


async def test_lines_take_the_engines_own_options(client, world):
    own = {"top_k": 3, "ignore_eos": True, "priority": 5, "cache_salt": "x", "guided_choice": ["a"]}
    first = line(0)
    first["body"] |= own
    await finish(client, await submit(client, jsonl(first, line(1))))
    with_options, without = sorted(world.chat.requests, key=lambda request: b"top_k" not in request.body)
    sent = json.loads(with_options.body)
    assert (sent["top_k"], sent["ignore_eos"], sent["structured_outputs"]) == (3, True, {"choice": ["a"]})
    assert with_options.priority == 15
    assert with_options.cache_salt != without.cache_salt


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


@on_both_databases
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


@on_both_databases
async def test_usage_is_counted_once_by_day_and_model(client, batch_stores):
    batch = await finish(client, await submit(client, jsonl(line(0), line(1), line(2, model="none"))))
    rows = {row.model: row for row in await UsageStore(batch_stores.database).by_day()}
    assert rows[MODEL].num_requests == 2
    assert rows[MODEL].prompt_tokens == batch.usage.input_tokens == 2 * USAGE.prompt_tokens
    assert rows[MODEL].completion_tokens == batch.usage.output_tokens
    assert (rows[""].num_requests, rows[""].num_errors) == (1, 1)


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


async def test_a_minute_that_is_spent_holds_no_batch_up(world, batch_stores):
    client = world.client()
    batch = await submit(client, jsonl(*map(line, range(10))))
    world.principal(requests_per_minute=1, tokens_per_minute=1)
    for _ in range(2):
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(**line(0)["body"])
    async with run_batches(world, batch_stores):
        async with asyncio.timeout(30):
            while not (await batch_stores.work.look(batch.id)).has_ended:  # noqa: ASYNC110 - it is in the database.
                await asyncio.sleep(0.01)
    state = await batch_stores.work.look(batch.id)
    assert (state.status, state.num_completed) == ("completed", 10)


async def test_progress_shows_while_a_batch_runs(client, world):
    gate = asyncio.Event()
    world.chat.script = lambda request: (
        Script([gate, *answer(request).steps], usage=USAGE) if b"Question 9" in request.body else answer(request)
    )
    batch = await submit(client, jsonl(*map(line, range(10))))
    async with asyncio.timeout(30):
        while batch.request_counts.completed < 9:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    assert batch.status == "in_progress"
    assert batch.usage.total_tokens == 9 * USAGE.total_tokens
    gate.set()
    assert (await finish(client, batch)).request_counts.completed == 10


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


@on_both_databases
async def test_the_tokens_of_unfinished_batches_are_bounded(world, batch_stores):
    limits = {"requests_per_minute": 10_000, "tokens_per_minute": 1_000_000, "enqueued_tokens": 2000}
    world.tiers = Tiers.model_validate({"research": limits})
    world.principal(tier="research")
    async with run_batches(world, batch_stores):
        client = world.client()
        assert (await finish(client, await submit(client, jsonl(line(0))))).status == "completed"
        batch = await finish(client, await submit(client, jsonl(*map(line, range(10)))))
    assert batch.status == "failed"
    assert batch.errors.data[0].code == "token_limit_exceeded"


@on_both_databases
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
        await eventually(lambda: "acct-2" in batching.worker.limiter._waiting)
        both_run.set()
        assert (await finish(quiet, small)).request_counts.completed == 10
        for batch in first:
            assert (await finish(busy, batch)).request_counts.completed == 300
    salts = [request.cache_salt for request in world.chat.requests]
    theirs = [number for number, salt in enumerate(salts) if salt != salts[0]]
    assert len(theirs) == 10
    assert theirs[-1] - theirs[0] < 60  # Every second line was theirs, or nearly.
    assert theirs[-1] < 300  # They waited for none of the batches that came before.
