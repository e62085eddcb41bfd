"""What breaks beneath a batch, and what becomes of its lines: engines, workers, stores, a disk that is full."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import update

from batch import run
from batch.worker import FleetDown
from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.state.batches.work import BatchWork
from deployments.state.database.tables.content import batches
from deployments.state.disk import ReserveReached
from deployments.state.housekeeping import Intervals
from deployments.state.objects.store import ObjectMissing
from tests.contract.http.answers import USAGE, answer
from tests.contract.http.batch_calls import CHAT, finish, jsonl, line, lines_of, submit
from tests.contract.http.batches.conftest import asked_in_vain, on_both_databases
from tests.contract.http.conftest import run_batches
from tests.twins.engine import Script
from tests.twins.fleet import LocalFleet
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually


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


@on_both_databases
async def test_stores_that_are_away_for_a_while_only_delay_a_batch(client, world):
    gate = asyncio.Event()
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    batch = await submit(client, jsonl(*map(line, range(5))))
    await eventually(lambda: len(world.chat.streams) == 5)
    world.objects.is_away = True
    gate.set()
    await asked_in_vain(world)
    assert (await client.batches.retrieve(batch.id)).status == "in_progress"
    world.objects.is_away = False
    batch = await finish(client, batch)
    assert batch.request_counts.completed == 5
    assert len(await lines_of(client, batch.output_file_id)) == 5


@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_a_batch_that_is_stopped_while_a_store_is_away_keeps_what_was_answered(world, batch_stores, end):
    world.principal(requests_per_minute=10_000)
    client, gate, uptime = world.client(), asyncio.Event(), TestClock(0.0)
    world.chat.script = lambda request: (
        Script([gate, *answer(request).steps], usage=USAGE)
        if b"Question 0" in request.body
        else Script([asyncio.Event()])
    )
    stores = replace(batch_stores, work=BatchWork(batch_stores.batches, uptime))
    async with run_batches(world, stores, lease_s=2):
        batch = await submit(client, jsonl(line(0), line(1)))
        await eventually(lambda: len(world.chat.streams) == 2)
        world.objects.is_away = True
        gate.set()
        await asked_in_vain(world)
        if end == "cancelled":
            assert (await client.batches.cancel(batch.id)).status == "cancelling"
        else:
            uptime.advance(86_400)
        await asked_in_vain(world)
        seen = await client.batches.retrieve(batch.id)
        assert (seen.finalizing_at, seen.request_counts.completed) == (None, 0)
        world.objects.is_away = False
        batch = await finish(client, batch)
    assert batch.status == end
    output = await lines_of(client, batch.output_file_id)
    assert output[0]["response"]["status_code"] == 200
    assert output[1]["error"]["code"] == f"batch_{end}"
    assert batch.usage.total_tokens == USAGE.total_tokens


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
    await asked_in_vain(world)
    batch = await client.batches.retrieve(batch.id)
    assert (batch.status, batch.request_counts.completed, batch.output_file_id) == ("in_progress", 0, None)
    assert [one.id for one in (await client.files.list()).data] == [file.id]
    world.objects.room_bytes = None
    batch = await finish(client, batch)
    assert batch.request_counts.completed == 5
    assert len(world.chat.streams) == 5


async def test_a_sweep_that_breaks_off_is_tried_again_until_what_has_expired_is_gone(world, batch_stores, monkeypatch):
    sweep, num_sweeps = batch_stores.files.sweep, 0

    async def break_off_twice():
        nonlocal num_sweeps
        num_sweeps += 1
        if num_sweeps <= 2:
            raise ObjectMissing("There is no such object.")
        return await sweep()

    monkeypatch.setattr(batch_stores.files, "sweep", break_off_twice)
    expires = {"anchor": "created_at", "seconds": 3600}
    await world.client().files.create(file=("x.txt", b"x"), purpose="user_data", expires_after=expires)
    kept = await world.client().files.create(file=("y.txt", b"y"), purpose="user_data")
    assert len(world.objects.objects) == 2
    world.clock.advance(2 * 3600)
    async with run_batches(world, batch_stores, intervals=Intervals(expired_s=0.02)):
        await eventually(lambda: len(world.objects.objects) == 1)
    assert num_sweeps > 2
    assert (await world.client().files.content(kept.id)).content == b"y"


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


async def test_a_disk_at_its_reserve_delays_a_batch_and_half_of_it_is_for_outputs(
    client, world, batch_stores, monkeypatch
):
    left, write = 0.9, batch_stores.segments.write
    looks = []

    async def check(part=1.0):
        looks.append(part)
        if left < part:
            raise ReserveReached

    async def write_the_last(segment, sealed):
        nonlocal left
        await write(segment, sealed)
        left = 0.4

    async def waits_at(part):
        looks.clear()
        await eventually(lambda: looks.count(part) >= 3)
        assert (await client.batches.retrieve(batch.id)).status in ("in_progress", "finalizing")

    monkeypatch.setattr(batch_stores.disk, "check", check)
    monkeypatch.setattr(batch_stores.segments, "write", write_the_last)
    batch = await submit(client, jsonl(line(0)))
    await waits_at(1.0)
    left = 1.1
    await waits_at(0.5)
    left = 0.9
    batch = await finish(client, batch)
    assert batch.request_counts.completed == 1
    assert len(world.chat.requests) == 1
