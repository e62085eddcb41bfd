"""Promises about batches, word for word: exact refusals, bounds, pages, scopes, totals, sweeps."""

import asyncio
from dataclasses import replace

import openai
import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.state.housekeeping import Intervals
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, USAGE, answer
from tests.contract.http.batch_calls import CHAT, finish, jsonl, line, lines_of, submit, until, until_done
from tests.contract.http.batches.conftest import on_both_databases
from tests.contract.http.conftest import run_batches
from tests.twins.engine import Script, ScriptedEngine, model_card
from tests.waiting import eventually

DAY_S = 86_400


async def refused_create(http, **fields):
    """Return the error with which the creation of a batch is refused that would be valid without these fields."""
    body = {"input_file_id": "file-x", "endpoint": CHAT, "completion_window": "24h", **fields}
    answer = await http.post("/v1/batches", json={name: value for name, value in body.items() if value is not ...})
    assert answer.status_code == 400
    return answer.json()["error"]


def refusal(message: str, param: str | None, code: str | None) -> dict[str, object]:
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"endpoint": "/v1/nothing"},
            (
                "Invalid value: '/v1/nothing'. Supported values are: '/v1/chat/completions', '/v1/completions', "
                "'/v1/embeddings', '/v1/responses', '/v1/tokenize', '/v1/detokenize', '/v1/rerank', '/v1/score', "
                "'/v1/moderations'.",
                "endpoint",
                "invalid_value",
            ),
        ),
        (
            {"completion_window": "1h"},
            ("Invalid value: '1h'. Supported values are: '24h'.", "completion_window", "invalid_value"),
        ),
        (
            {"completion_window": ...},
            ("Missing required parameter: 'completion_window'.", "completion_window", "missing_required_parameter"),
        ),
        (
            {"input_file_id": ...},
            ("Missing required parameter: 'input_file_id'.", "input_file_id", "missing_required_parameter"),
        ),
        (
            {"input_file_id": None},
            (
                "Invalid type for 'input_file_id': expected a string, but got null instead.",
                "input_file_id",
                "invalid_type",
            ),
        ),
        ({"more": 1}, ("Unknown parameter: 'more'.", "more", "unknown_parameter")),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
            (
                "Invalid 'output_expires_after.seconds': integer below minimum value. Expected a value >= 3600, but "
                "got 3599 instead.",
                "output_expires_after.seconds",
                "integer_below_min_value",
            ),
        ),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 2_592_001}},
            (
                "Invalid 'output_expires_after.seconds': integer above maximum value. Expected a value <= 2592000, but "
                "got 2592001 instead.",
                "output_expires_after.seconds",
                "integer_above_max_value",
            ),
        ),
        (
            {"output_expires_after": {"anchor": "completed_at", "seconds": 3600}},
            (
                "Invalid value: 'completed_at'. Supported values are: 'created_at'.",
                "output_expires_after.anchor",
                "invalid_value",
            ),
        ),
        (
            {"metadata": {str(number): "" for number in range(17)}},
            (
                "Invalid 'metadata': too many properties. Expected an object with at most 16 properties, but got an "
                "object with 17 properties instead.",
                "metadata",
                "object_above_max_properties",
            ),
        ),
        (
            {"metadata": {"k" * 65: ""}},
            (
                "Invalid key in 'metadata': string too long. Expected keys with maximum length 64, but got one with "
                "length 65 instead.",
                "metadata",
                "string_above_max_length",
            ),
        ),
        (
            {"metadata": {"k": "v" * 513}},
            (
                "Invalid value in 'metadata': string too long. Expected values with maximum length 512, but got one "
                "with length 513 instead.",
                "metadata",
                "string_above_max_length",
            ),
        ),
        (
            {"metadata": {"k": 1}},
            ("Invalid type in 'metadata': expected every value to be a string.", "metadata", "invalid_type"),
        ),
    ],
)
async def test_a_request_that_is_not_valid_is_told_why(http, fields, told):
    assert await refused_create(http, **fields) == refusal(*told)


@on_both_databases
async def test_metadata_comes_back_as_it_was_given_up_to_its_bounds(client, world):
    full = {f"{number:02}".ljust(64, "k"): "ä" * 512 for number in range(16)}
    for metadata in (full, {}):
        batch = await submit(client, jsonl(line(0)), metadata=metadata)
        assert batch.metadata == metadata
        assert (await finish(client, batch)).metadata == metadata
        world.clock.advance(1)
    assert [one.metadata async for one in client.batches.list()] == [{}, full]


async def test_the_eleventh_unfinished_batch_is_told_why(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    client = world.client()
    first = await submit(client, jsonl(line(0)))
    asked = {"input_file_id": first.input_file_id, "endpoint": CHAT, "completion_window": "24h"}
    for _ in range(9):
        await client.batches.create(**asked)
    async with world.http() as http:
        answer = await http.post("/v1/batches", json=asked)
    assert answer.status_code == 429
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"] == {
        "message": "You have 10 batches that have not ended, which is the limit. Wait for one of them to end, or "
        "cancel one.",
        "type": "insufficient_quota",
        "param": None,
        "code": "batch_limit_exceeded",
    }
    assert len([one async for one in client.batches.list(limit=3)]) == 10


async def test_lists_are_read_in_pages(http, client, world):
    ids = []
    for _ in range(3):
        ids.insert(0, (await finish(client, await submit(client, jsonl(line(0))))).id)
        world.clock.advance(1)

    async def page(query: str):
        answer = await http.get(f"/v1/batches{query}")
        assert answer.status_code == 200
        shown = answer.json()
        assert shown["object"] == "list"
        return [one["id"] for one in shown["data"]], shown["first_id"], shown["last_id"], shown["has_more"]

    assert await page("") == (ids, ids[0], ids[2], False)
    assert await page("?limit=2") == (ids[:2], ids[0], ids[1], True)
    assert await page(f"?limit=2&after={ids[1]}") == (ids[2:], ids[2], ids[2], False)
    assert await page(f"?limit=100&after={ids[2]}") == ([], None, None, False)


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        (
            "limit=0",
            400,
            (
                "Invalid 'limit': integer below minimum value. Expected a value >= 1, but got 0 instead.",
                "limit",
                "integer_below_min_value",
            ),
        ),
        (
            "limit=101",
            400,
            (
                "Invalid 'limit': integer above maximum value. Expected a value <= 100, but got 101 instead.",
                "limit",
                "integer_above_max_value",
            ),
        ),
        ("after=batch_none", 404, ("No batch found with id 'batch_none'.", "after", None)),
    ],
)
async def test_a_page_that_is_not_valid_is_told_why(http, query, status, told):
    answer = await http.get(f"/v1/batches?{query}")
    assert (answer.status_code, answer.json()["error"]) == (status, refusal(*told))


async def test_a_file_of_another_purpose_is_told_as_such(client):
    file = await client.files.create(file=("in.jsonl", jsonl(line(0))), purpose="user_data")
    batch = await finish(
        client, await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    )
    assert [one.model_dump() for one in batch.errors.data] == [
        {
            "code": "invalid_request",
            "message": f"File {file.id} was not uploaded with the purpose 'batch', but 'user_data'.",
            "param": "file_id",
            "line": None,
        }
    ]
    assert (await client.files.retrieve(file.id)).id == file.id


async def test_a_file_that_has_expired_is_told_as_a_missing_one(client, world):
    file = await client.files.create(
        file=("in.jsonl", jsonl(line(0))), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    world.clock.advance(3600)
    batch = await finish(
        client, await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    )
    assert [(one.code, one.message) for one in batch.errors.data] == [
        (
            "invalid_request",
            f"Cannot find file {file.id}, or organization org-one does not have access to it.",
        )
    ]


@on_both_databases
async def test_an_input_that_is_in_use_is_not_deleted(http, client, world):
    gate = asyncio.Event()
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    batch = await submit(client, jsonl(line(0)))
    refused = await http.delete(f"/v1/files/{batch.input_file_id}")
    assert refused.status_code == 409
    assert refused.json()["error"] == refusal(
        f"File {batch.input_file_id} is the input of batch {batch.id}, which has not ended. Cancel the batch first, or "
        "wait for its end.",
        "id",
        "file_in_use",
    )
    gate.set()
    assert (await finish(client, batch)).request_counts.completed == 1


@pytest.mark.parametrize(("asked_s", "lifetime_s"), [(None, 7 * DAY_S), (3600, 3600), (30 * DAY_S, 7 * DAY_S)])
async def test_output_and_errors_end_when_asked_and_not_later_than_the_policy_says(client, world, asked_s, lifetime_s):
    more = {} if asked_s is None else {"output_expires_after": {"anchor": "created_at", "seconds": asked_s}}
    batch = await finish(client, await submit(client, jsonl(line(0), line(1, model="none")), **more))
    for file_id in (batch.output_file_id, batch.error_file_id):
        file = await client.files.retrieve(file_id)
        assert file.expires_at == file.created_at + lifetime_s
    world.clock.advance(lifetime_s)
    for file_id in (batch.output_file_id, batch.error_file_id):
        with pytest.raises(openai.NotFoundError):
            await client.files.content(file_id)
    assert (await client.batches.retrieve(batch.id)).output_file_id == batch.output_file_id


async def test_totals_are_the_sum_of_the_lines_that_were_answered(client, world):
    world.chat.script = lambda request: (
        Script([RequestRejected("No.", "messages", "invalid_value")])
        if b"Question 1" in request.body
        else replace(answer(request), usage=USAGE)
    )
    lines = [line(0), line(1), line(2, model="none"), line(3), line(4)]
    batch = await finish(client, await submit(client, jsonl(*lines)))
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (5, 3, 2)
    output = await lines_of(client, batch.output_file_id)
    bodies = [one["response"]["body"] for one in output if one["response"]["status_code"] == 200]
    assert batch.usage.total_tokens == sum(body["usage"]["total_tokens"] for body in bodies) == 3 * USAGE.total_tokens
    assert batch.usage.input_tokens + batch.usage.output_tokens == batch.usage.total_tokens
    assert batch.usage.input_tokens_details.cached_tokens == 3 * USAGE.cached_tokens
    assert batch.usage.output_tokens_details.reasoning_tokens == 0


async def test_each_line_has_its_own_model(client, world):
    other = ScriptedEngine(model_card("demo/other", "chat"), answer)
    world.directory._engines["demo/other"] = other
    lines = [line(number, model="demo/other" if number % 2 else MODEL) for number in range(6)]
    batch = await finish(client, await submit(client, jsonl(*lines)))
    assert (batch.status, batch.request_counts.completed) == ("completed", 6)
    assert (len(world.chat.requests), len(other.requests)) == (3, 3)
    assert [one["custom_id"] for one in await lines_of(client, batch.output_file_id)] == [
        f"request-{number}" for number in range(6)
    ]


async def test_the_scopes_of_a_key_hold_for_each_line_whatever_name_it_uses(client, world, http):
    world.directory._engines["other/chat"] = ScriptedEngine(model_card("other/chat", "chat"), answer)
    world.directory._aliases["smart"] = "other/chat"
    world.principal(models=("demo/*",), requests_per_minute=10_000)
    names = [MODEL, "chat", "other/chat", "smart", "none"]
    batch = await finish(client, await submit(client, jsonl(*(line(n, model=name) for n, name in enumerate(names)))))
    output = await lines_of(client, batch.output_file_id)
    assert [one["response"]["status_code"] for one in output] == [200, 200, 404, 404, 404]
    for name, one in list(zip(names, output, strict=True))[2:]:
        assert one["response"]["body"]["error"] == refusal(
            f"The model `{name}` does not exist or you do not have access to it. GET /v1/models lists the models of "
            "this key.",
            "model",
            "model_not_found",
        )
    world.principal(operations=frozenset({"files", "chat", "embeddings"}))
    for refused in (
        await http.get("/v1/batches"),
        await http.post("/v1/batches", json={}),
        await http.get("/v1/models"),
    ):
        assert (refused.status_code == 403) == (refused.url.path == "/v1/batches")


async def test_the_scopes_are_those_that_the_key_had_when_the_batch_was_created(world, batch_stores):
    world.principal(models=(EMBEDDING_MODEL,), requests_per_minute=10_000)
    client = world.client()
    batch = await submit(client, jsonl(line(0)))
    world.principal(requests_per_minute=10_000)
    async with run_batches(world, batch_stores):
        batch = await finish(client, batch)
    (one,) = await lines_of(client, batch.error_file_id)
    assert one["response"]["status_code"] == 404


@on_both_databases
async def test_what_has_ended_or_belongs_to_nothing_is_swept_away(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    client, objects = world.client(), world.objects
    file = await client.files.create(
        file=("x.txt", b"x"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    (expired,) = objects.objects
    gate = asyncio.Event()
    world.chat.script = lambda request: (
        answer(request) if b"Question 0" in request.body else Script([gate, *answer(request).steps], usage=USAGE)
    )
    async with run_batches(world, batch_stores, intervals=Intervals(expired_s=0.02, orphans_s=0.02)):
        batch = await until(client, await submit(client, jsonl(line(0), line(1))), "in_progress")
        batch = await until_done(client, batch, 1)
        (segment,) = [key for key in objects.objects if key.startswith("segments/")]
        await objects.put("files/orphan", b"x")
        await objects.put("segments/orphan", b"x")
        world.clock.advance(7 * 3600)  # They were written hours ago, as the object store says.
        objects.now = world.clock.now  # What is written from now on was not.
        await eventually(lambda: not {expired, "files/orphan", "segments/orphan"} & set(objects.objects))
        assert segment in objects.objects
        gate.set()
        batch = await finish(client, batch)
        await eventually(lambda: segment not in objects.objects)
    assert batch.request_counts.completed == 2
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(file.id)


async def test_an_orphan_that_was_just_written_is_kept(world, batch_stores, monkeypatch):
    """It may be a segment whose commit is on its way."""
    sweeps = 0
    swept = batch_stores.work.known_segments

    async def counted(keys):
        nonlocal sweeps
        sweeps += 1
        return await swept(keys)

    monkeypatch.setattr(batch_stores.work, "known_segments", counted)
    await world.objects.put("segments/old", b"x")
    world.clock.advance(7 * 3600)
    world.objects.now = world.clock.now
    await world.objects.put("segments/new", b"x")
    async with run_batches(world, batch_stores, intervals=Intervals(expired_s=0.02, orphans_s=0.02)):
        await eventually(lambda: sweeps > 0 and "segments/old" not in world.objects.objects)
    assert "segments/new" in world.objects.objects
