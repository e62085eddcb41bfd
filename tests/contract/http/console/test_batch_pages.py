"""Batches in the console: what an upload is checked for, and what a batch shows of its files and failed lines."""

import asyncio
import json
import re
from time import time

from sqlalchemy import update

from deployments.state.database.tables.content import batches
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import add_lines
from tests.contract.http.answers import MODEL

CHAT = "/v1/chat/completions"
ENDED = re.compile(r'data-status="(completed|failed|cancelled)"')


def line(number, **body):
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **body}
    return json.dumps({"custom_id": f"line-{number}", "method": "POST", "url": CHAT, "body": asked})


async def upload(holder, name, lines):
    return await holder.upload("/console/upload/batch", name, "\n".join(lines).encode(), purpose="batch")


async def test_the_first_bodies_are_checked_and_a_bad_file_is_not_stored(world, holder, secrets):
    lines = [
        line(1),
        line(2, temperature=9),
        line(3, model="none"),
        *map(line, range(4, 300)),
        line(300, temperature=9),
    ]
    answer = await upload(holder, "in.jsonl", lines)
    assert "2 of its lines cannot be run" in answer.text
    rows = re.findall(
        r'<td class="num">(\d+)</td><td class="mono">(\w+)</td><td class="mono">(?:<[^>]+>)?([\w.]+)', answer.text
    )
    assert rows == [("2", "decimal_above_max_value", "body.temperature"), ("3", "model_not_found", "body.model")]
    assert [file async for file in world.client(secrets["acct_one"]).files.list()] == []
    assert (
        "is ready"
        in (await upload(holder, "in.jsonl", [line(1), *map(line, range(2, 300)), line(300, temperature=9)])).text
    )


async def test_a_file_that_is_refused_gets_the_form_again(holder):
    answer = await upload(holder, "in.txt", [line(1)])
    assert answer.status_code == 400
    assert ".jsonl" in answer.text.partition('role="alert"')[2].partition("</p>")[0]
    assert "Upload and check" in answer.text
    assert (await holder.http.get("/console/upload/batch")).headers["location"] == "/console/batches/new"


async def start(world, secrets, name, content):
    client = world.client(secrets["acct_one"])
    file = await client.files.create(file=(name, content.encode()), purpose="batch")
    return await client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")


async def ended(holder, batch):
    place = f"/console/batches/{batch.id}"
    while not ENDED.search(text := await holder.read(place)):  # noqa: ASYNC110 - a browser polls.
        await asyncio.sleep(0.02)
    return text


async def test_a_batch_leads_to_its_files_and_a_bar_shows_completed_lines_only(world, holder, secrets, batching):
    batch = await start(world, secrets, "questions.jsonl", "\n".join([line(1), line(2, model="none"), line(3)]))
    text = await ended(holder, batch)
    for file_id in re.findall(r"file-\w{32}", text):
        assert f'href="/console/files/{file_id}/content"' in text
    assert "questions.jsonl" in text
    assert "Lines completed: 2 of 3, 1 failed" in text
    assert re.search(r'<progress max="3" value="2"', text)
    rows = await holder.read("/console/batches")
    assert "questions.jsonl" in rows
    assert re.search(r'<progress max="3" value="2"', rows)


async def test_a_batch_whose_input_is_not_valid_says_so_in_place_of_counts(world, holder, secrets, batching):
    text = await ended(holder, await start(world, secrets, "in.jsonl", "not JSON"))
    assert "no line ran: the input is not valid" in text
    assert "0 of 0" not in text
    assert "invalid_json_line" in text


async def test_lines_that_fail_are_shown_while_the_batch_runs(world, holder, secrets, batch_stores):
    batch = await start(world, secrets, "in.jsonl", line(1))
    database = world.keys._database
    record = RequestRecord(
        request_id="req_" + "a" * 32,
        at=time(),
        key_id=None,
        account="acct_one",
        tier="standard",
        method="POST",
        route=CHAT,
        model=None,
        status=404,
        code="model_not_found",
        stream=False,
        prompt_tokens=0,
        completion_tokens=0,
        cached_tokens=0,
        ttft_s=None,
        total_s=0.1,
        batch_id=batch.id,
        param="model",
    )
    async with database.write() as connection:
        await add_lines(connection, database, batch.id, [(0, record)])
    async with world.batches.database.write() as connection:
        await connection.execute(update(batches).where(batches.c.batch_id == batch.id).values(num_failed=1))
    text = await holder.read(f"/console/batches/{batch.id}")
    assert "Lines that have failed so far" in text
    assert "model_not_found" in text
    assert f'/console/requests/{record.request_id}"' in text
