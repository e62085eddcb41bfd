"""Batches in the console: what an upload is checked for, and what a batch shows of its files and failed lines."""

import asyncio
import json
import re
from time import time

import pytest
from sqlalchemy import update

from deployments.models.price import PriceConfig, Prices
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
    answer = await upload(holder, "in.jsonl", [line(1), *map(line, range(2, 300)), line(300, temperature=9)])
    assert "is ready" in answer.text
    assert "1,024 tokens where a line sets none" in answer.text


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
    assert "nothing ran: the file has an invalid line" in text
    assert "0 of 0" not in text
    assert "invalid_json_line" in text


def record_of(number, **more):
    values = {
        "at": time(),
        "key_id": None,
        "account": "acct_one",
        "tier": "standard",
        "method": "POST",
        "route": CHAT,
        "model": MODEL,
        "status": 200,
        "code": None,
        "stream": False,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cached_tokens": 0,
        "ttft_s": None,
        "total_s": 0.1,
    }
    return RequestRecord(request_id=f"req_{number:032}", **values | more)


async def add(world, batch_id, *records):
    database = world.keys._database
    async with database.write() as connection:
        await add_lines(connection, database, batch_id, enumerate(records))


async def test_lines_that_fail_are_shown_while_the_batch_runs(world, holder, secrets, batch_stores):
    batch = await start(world, secrets, "in.jsonl", line(1))
    record = record_of(1, model=None, status=404, code="model_not_found", param="model")
    await add(world, batch.id, record)
    async with world.batches.database.write() as connection:
        await connection.execute(update(batches).where(batches.c.batch_id == batch.id).values(num_failed=1))
    text = await holder.read(f"/console/batches/{batch.id}")
    assert "Lines that have failed so far" in text
    assert "model_not_found" in text
    assert f'/console/requests/{record.request_id}"' in text


@pytest.fixture(params=[0.0, 1.0])
def price(world, request) -> float:
    """The price of the model; it is known before the application is made."""
    world.prices = Prices({MODEL: PriceConfig(input=request.param)} if request.param else {})
    return request.param


async def test_a_batch_shows_what_its_requests_have_cost(price, world, holder, secrets, batch_stores):
    batch = await start(world, secrets, "in.jsonl", line(1))
    place = f"/console/batches/{batch.id}"

    async def cost():
        figure = re.search(r"<dt>Cost</dt><dd>(.*?)</dd>", await holder.read(place))
        return re.sub(r"<[^>]+>", "", figure[1])

    assert await cost() == "\N{EN DASH}"
    per_line = 6_075_000 * int(price)
    costs = {"at": world.clock(), "input_cost": per_line, "cached_cost": per_line}
    records = [record_of(number, **costs) for number in (1, 2)]
    await add(world, batch.id, *records)
    await add(world, "batch_other", record_of(3, **costs))
    async with world.batches.database.write() as connection:
        await connection.execute(update(batches).values(finalizing_at=world.clock()))
    assert await cost() == ("0.0000243 USD" if price else "no price set")
    requests = f"/console/requests?batch_id={batch.id}"
    assert f'href="{requests}"' in await holder.read(place)
    assert len(set(re.findall(r"/console/requests/(req_\w+)", await holder.read(requests)))) == len(records)


async def test_the_example_of_a_batch_names_a_model_of_the_key(holder):
    assert f'"body": {{"model": "{MODEL}",' in await holder.read("/console/batches/new")
