"""Keys that are bound to regions: refused at every door of another, and what they store is in one bucket alone."""

import asyncio
from contextvars import Context

import openai
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.contract.http.answers import MODEL, SECRET
from tests.contract.http.batch_calls import finish, jsonl, line, submit
from tests.contract.http.conftest import run_batches, serve
from tests.twins.fleet import LocalFleet


class FleetElsewhere(LocalFleet):
    """A worker that learns only what messages say, as one in a process of its own does."""

    async def run(self, batch, places):
        await asyncio.create_task(super().run(batch, places), context=Context())


async def test_another_region_refuses_requests_and_sockets(world):
    world.principal(regions=("us",))
    world.region = "asia"
    with pytest.raises(openai.PermissionDeniedError) as refused:
        await world.client().chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    assert refused.value.code == "wrong_region"
    world.principal(regions=("us",), is_admin=True)
    async with world.http() as http:
        assert (await http.get("/v1/organization/audit_logs")).json()["error"]["code"] == "wrong_region"
    async with serve(world.app(), ws="websockets-sansio") as address:
        with pytest.raises(InvalidStatus) as closed:
            await connect(
                f"{address.replace('http', 'ws')}/v1/responses",
                additional_headers={"authorization": f"Bearer {SECRET}"},
            )
    assert closed.value.response.status_code == 403
    assert not world.chat.requests


async def test_files_uploads_and_batches_are_in_the_near_bucket_alone(world, buckets, batch_stores):
    near, far = buckets
    world.principal(regions=("us",), requests_per_minute=10_000)
    client = world.client()
    async with run_batches(world, batch_stores, FleetElsewhere):  # First: requests run in this task, and mark it.
        upload = await client.uploads.create(bytes=6, filename="a.txt", mime_type="text/plain", purpose="user_data")
        part = await client.uploads.parts.create(upload.id, data=b"abcdef")
        await client.uploads.complete(upload.id, part_ids=[part.id])
        batch = await finish(client, await submit(client, jsonl(line(0), line(1, model="none"))))
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
    assert {key.partition("/")[0] for key in near.modified_at} == {"files", "segments", "uploads"}
    assert far.modified_at == {}
