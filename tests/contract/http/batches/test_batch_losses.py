"""Stored content that is damaged or gone in the middle of a batch: what can be saved is saved, and the batch ends."""

import asyncio
from dataclasses import replace

import pytest

from batch import input as input_module
from batch import stores as stores_module
from deployments.state.batches.work import BatchWork
from deployments.state.housekeeping import Intervals
from tests.contract.http.answers import USAGE, answer
from tests.contract.http.batch_calls import (
    finish,
    jsonl,
    line,
    lines_of,
    submit,
    until,
    until_done,
    until_sealed,
)
from tests.contract.http.batches.conftest import asked_in_vain
from tests.contract.http.conftest import run_batches
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually

LARGE = "x" * 600_000
INPUT_LOST = {
    "code": "input_file_lost",
    "message": "The input file can no longer be read from storage. The output file has the lines that ran before.",
    "param": "input_file_id",
    "line": None,
}


def large(number: int) -> dict[str, object]:
    """Return a line so long that two do not fit into one read."""
    made = line(number)
    made["body"]["messages"].insert(0, {"role": "system", "content": LARGE})
    return made


def flip(content: bytes) -> bytes:
    """Return content with one bit of its last byte another one."""
    return content[:-1] + bytes([content[-1] ^ 1])


def key_of(world, folder: str) -> str:
    """Return the key of the only object in a folder."""
    (key,) = [key for key in world.objects.objects if key.startswith(f"{folder}/")]
    return key


def damage(world, how: str, folder: str = "files") -> None:
    key = key_of(world, folder)
    if how == "gone":
        del world.objects.objects[key]
    else:
        world.objects.objects[key] = flip(world.objects.objects[key])


async def submit_held(client, world):
    """Submit four large lines; return the batch, and the event for which the first waits, when that is running."""
    gate = hold_first(world)
    batch = await submit(client, jsonl(*map(large, range(4))))
    await eventually(lambda: world.chat.streams)
    return batch, gate


async def submit_half_done(client, world):
    """Submit two lines; the second waits for ever; return the batch when the first is answered."""
    world.chat.script = lambda request: answer(request) if b"Question 0" in request.body else Script([asyncio.Event()])
    return await until_done(client, await submit(client, jsonl(line(0), line(1))), 1)


def hold_first(world) -> asyncio.Event:
    """Have the first line wait for the event that is returned."""
    gate = asyncio.Event()
    world.chat.script = lambda request: (
        Script([gate, *answer(request).steps], usage=USAGE) if b"Question 0" in request.body else answer(request)
    )
    return gate


@pytest.fixture
def client(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    return world.client()


@pytest.fixture
def cancels_soon(monkeypatch):
    monkeypatch.setattr(input_module, "_LOST_AFTER_CANCEL_S", 0.05)


@pytest.fixture
def impatient(monkeypatch, cancels_soon):
    monkeypatch.setattr(stores_module, "_LOST_AFTER_S", 0.05)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["gone", "damaged"])
async def test_a_batch_whose_input_is_lost_fails_and_keeps_what_is_done(client, world, batch_stores, how):
    async with run_batches(world, batch_stores, max_lines_in_flight=1):
        batch, gate = await submit_held(client, world)
        damage(world, how)
        gate.set()
        batch = await finish(client, batch)
    assert (batch.status, batch.failed_at) == ("failed", int(world.clock()))
    assert [one.model_dump() for one in batch.errors.data] == [INPUT_LOST]
    output = await lines_of(client, batch.output_file_id)
    num_done = len(output)
    assert 1 <= num_done < 4
    assert [one["custom_id"] for one in output] == [f"request-{number}" for number in range(num_done)]
    assert batch.error_file_id is None
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (4, num_done, 4 - num_done)
    assert batch.usage.total_tokens == num_done * USAGE.total_tokens
    assert len(world.chat.streams) == num_done


@pytest.mark.usefixtures("impatient")
async def test_a_batch_that_is_taken_over_after_its_input_is_lost_keeps_what_is_done(client, world, batch_stores):
    async with run_batches(world, batch_stores):
        batch = await submit_half_done(client, world)
    damage(world, "gone")
    async with run_batches(world, batch_stores):
        batch = await finish(client, batch)
    assert (batch.status, batch.errors.data[0].code) == ("failed", "input_file_lost")
    assert [one["custom_id"] for one in await lines_of(client, batch.output_file_id)] == ["request-0"]


@pytest.mark.usefixtures("impatient")
async def test_an_input_that_is_lost_before_it_is_validated_fails_the_batch(client, world, batch_stores):
    batch = await submit(client, jsonl(line(0)))
    damage(world, "damaged")
    async with run_batches(world, batch_stores):
        batch = await finish(client, batch)
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert [one.model_dump() for one in batch.errors.data] == [INPUT_LOST]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_a_batch_that_is_stopped_ends_also_without_its_input(client, world, batch_stores, end):
    uptime = TestClock(0.0)
    stores = replace(batch_stores, work=BatchWork(batch_stores.batches, uptime))
    async with run_batches(world, stores, lease_s=2):
        batch = await submit_half_done(client, world)
        damage(world, "damaged")
        if end == "cancelled":
            await client.batches.cancel(batch.id)
        else:
            uptime.advance(86_400)
        batch = await finish(client, batch)
    assert (batch.status, batch.errors) == (end, None)
    assert [one["custom_id"] for one in await lines_of(client, batch.output_file_id)] == ["request-0"]
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)


@pytest.mark.usefixtures("cancels_soon")
@pytest.mark.parametrize("is_taken_over", [False, True])
async def test_a_cancelled_batch_does_not_wait_long_for_an_input_that_is_lost(
    client, world, batch_stores, is_taken_over
):
    async with run_batches(world, batch_stores, max_lines_in_flight=1):
        batch, gate = await submit_held(client, world)
        damage(world, "gone")
        gate.set()
        await until_done(client, batch, 1)
        await asked_in_vain(world)  # The other lines' input is waited for.
        if not is_taken_over:
            await client.batches.cancel(batch.id)
            batch = await finish(client, batch)
    async with run_batches(world, batch_stores):
        if is_taken_over:
            await asked_in_vain(world)
            await client.batches.cancel(batch.id)
            batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.total) == ("cancelled", 1, 4)
    assert [one["custom_id"] for one in await lines_of(client, batch.output_file_id)] == ["request-0"]


@pytest.mark.usefixtures("cancels_soon")
async def test_a_batch_that_is_cancelled_before_it_is_valid_does_not_wait_long_either(client, world, batch_stores):
    batch = await submit(client, jsonl(line(0)))
    damage(world, "gone")
    async with run_batches(world, batch_stores):
        await asked_in_vain(world)
        await client.batches.cancel(batch.id)
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.total) == ("cancelled", 0)


@pytest.mark.usefixtures("impatient")
async def test_a_batch_whose_lines_are_all_done_needs_its_input_no_more(client, world, batch_stores):
    gate = hold_first(world)
    async with run_batches(world, batch_stores):
        batch = await until_done(client, await submit(client, jsonl(line(0), line(1))), 1)
        stored = world.objects.objects
        # There is room for the other answer, and none for the output of both.
        world.objects.room_bytes = sum(map(len, stored.values())) + len(stored[key_of(world, "segments")]) * 3 // 2
        gate.set()
        await until_sealed(client, batch)
    damage(world, "gone")
    world.objects.room_bytes = None
    async with run_batches(world, batch_stores):
        batch = await finish(client, batch)
    assert (batch.status, batch.errors, batch.request_counts.completed) == ("completed", None, 2)
    assert len(await lines_of(client, batch.output_file_id)) == 2


@pytest.mark.usefixtures("cancels_soon")
async def test_a_cancelled_batch_waits_for_answers_that_are_lost_as_long_as_any(client, world, batch_stores):
    async with run_batches(world, batch_stores):
        batch = await submit_half_done(client, world)
        damage(world, "damaged")
        key = key_of(world, "segments")
        content = world.objects.objects.pop(key)
        await client.batches.cancel(batch.id)
        await until_sealed(client, batch)
        await asked_in_vain(world)
        assert (await client.batches.retrieve(batch.id)).status == "cancelling"
        world.objects.objects[key] = content
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == ("cancelled", 1, 1)
    assert [one["custom_id"] for one in await lines_of(client, batch.output_file_id)] == ["request-0"]


async def test_an_input_that_comes_back_is_no_line_s_fault(client, world, batch_stores):
    """As on a disk that was not mounted for a moment."""
    async with run_batches(world, batch_stores, max_lines_in_flight=1):
        batch, gate = await submit_held(client, world)
        key = key_of(world, "files")
        content = world.objects.objects.pop(key)
        gate.set()
        await asked_in_vain(world)
        assert (await client.batches.retrieve(batch.id)).status == "in_progress"
        world.objects.objects[key] = content
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed, batch.errors) == ("completed", 4, None)
    assert len(world.chat.streams) == 4


async def test_an_input_that_is_lost_holds_no_other_batch_up(client, world, batch_stores):
    async with run_batches(world, batch_stores, max_lines_in_flight=1):
        lost, gate = await submit_held(client, world)
        damage(world, "gone")
        gate.set()
        batch = await finish(client, await submit(client, jsonl(line(0), line(1))))
        assert batch.request_counts.completed == 2
        assert (await client.batches.retrieve(lost.id)).status == "in_progress"


@pytest.mark.usefixtures("impatient")
async def test_a_line_whose_answer_is_lost_says_so(client, world, batch_stores):
    gate = hold_first(world)
    async with run_batches(world, batch_stores):
        batch = await submit(client, jsonl(line(0), line(1)))
        await until_done(client, batch, 1)
        damage(world, "damaged", "segments")
        gate.set()
        batch = await finish(client, batch)
    assert batch.status == "completed"
    output = await lines_of(client, batch.output_file_id)
    assert [one["custom_id"] for one in output] == ["request-0", "request-1"]
    assert output[0]["response"]["status_code"] == 200
    assert output[1]["response"] is None
    assert output[1]["error"] == {
        "code": "answer_lost",
        "message": "This request was executed, but its answer was lost in storage.",
    }
    assert await lines_of(client, batch.error_file_id) == output[1:]
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 1)
    assert batch.usage.total_tokens == 2 * USAGE.total_tokens


async def test_a_disk_that_gets_full_at_the_end_is_not_filled_further(client, world, batch_stores):
    async with run_batches(world, batch_stores):
        batch = await submit_half_done(client, world)
        before = dict(world.objects.objects)
        # The error file, of one short line, finds room; the output does not.
        world.objects.room_bytes = sum(map(len, before.values())) + 500
        await client.batches.cancel(batch.id)
        await until_sealed(client, batch)
        await asked_in_vain(world)
        assert world.objects.objects == before
        assert (await client.batches.retrieve(batch.id)).output_file_id is None
        world.objects.room_bytes = None
        batch = await finish(client, batch)
    assert len(await lines_of(client, batch.output_file_id)) == 2
    assert len(await lines_of(client, batch.error_file_id)) == 1


async def test_an_input_that_expires_while_its_batch_runs_stays_until_the_end(client, world, batch_stores):
    gate = hold_first(world)
    file = await client.files.create(
        file=("in.jsonl", jsonl(*map(large, range(4)))),
        purpose="batch",
        expires_after={"anchor": "created_at", "seconds": 3600},
    )
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    async with run_batches(world, batch_stores, max_lines_in_flight=1, intervals=Intervals(expired_s=0.02)):
        batch = await until(client, batch, "in_progress")
        world.clock.advance(3600)
        await asyncio.sleep(0.2)
        gate.set()
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed) == ("completed", 4)
    assert len(await lines_of(client, batch.output_file_id)) == 4
