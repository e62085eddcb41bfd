"""Batches as a client asks for them."""

import asyncio
import json

import orjson

from tests.contract.http.answers import MODEL

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


async def run_responses(world, num_lines=1, **body) -> bytes:
    """Return the output of a batch whose every line asks for a response with this body."""
    lines = [line(number, "/v1/responses", body={"model": MODEL, "input": "x", **body}) for number in range(num_lines)]
    client = world.client()
    batch = await finish(client, await submit(client, jsonl(*lines), endpoint="/v1/responses"), timeout_s=90)
    assert batch.status == "completed"
    return (await client.files.content(batch.output_file_id)).content


async def until(client, batch, *statuses, timeout_s=60):
    async with asyncio.timeout(timeout_s):
        while batch.status not in statuses:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def finish(client, batch, timeout_s=60):
    return await until(client, batch, *ENDED, timeout_s=timeout_s)


async def until_done(client, batch, num_lines, timeout_s=60):
    """Wait until `num_lines` were completed."""
    async with asyncio.timeout(timeout_s):
        while batch.request_counts.completed < num_lines:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def until_sealed(client, batch, timeout_s=60):
    """Wait until no outcomes are accepted any more."""
    async with asyncio.timeout(timeout_s):
        while batch.finalizing_at is None:
            await asyncio.sleep(0.01)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def lines_of(client, file_id):
    content = (await client.files.content(file_id)).content
    assert content.endswith(b"\n")
    return [json.loads(one) for one in content.splitlines()]
