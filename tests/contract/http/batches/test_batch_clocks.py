"""Clocks that jump while coordinators work: no batch is lost by it, kept beyond its end, or ended too early."""

import asyncio
from dataclasses import replace

from batch.coordinator import Coordinator
from batch.stores import Stores, create_stores
from deployments.state.batches.store import BatchStore
from deployments.state.batches.work import BatchWork
from tests.contract.http.answers import USAGE, answer
from tests.contract.http.batch_calls import finish, jsonl, line, lines_of, submit
from tests.contract.http.conftest import World, run_batches
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually

NUM_LINES = 6
DAY_S = 86_400.0


class CountedClaims(BatchWork):
    """Counts how often it was looked for a batch to claim."""

    num_looks = 0

    async def claim(self, lease_s, running=(), *, only_first=False):
        self.num_looks += 1
        return await super().claim(lease_s, running, only_first=only_first)


def looked_at(stores: Stores, uptime: TestClock, clock: TestClock | None = None) -> Stores:
    """Return the stores as a process sees them whose wall clock is `clock` and which is up for `uptime`."""
    batches = stores.batches
    if clock is not None:
        batches = BatchStore(stores.database, stores.files.vault, clock=clock)
    made = create_stores(stores.database, stores.objects, stores.files, batches)
    return replace(made, work=CountedClaims(batches, uptime))


def held_lines(world: World) -> asyncio.Event:
    """Have every line wait for the event that is returned."""
    gate = asyncio.Event()
    world.chat.script = lambda request: Script([gate, *answer(request).steps], usage=USAGE)
    return gate


async def looks(stores: Stores, num_more: int) -> None:
    """Wait until batches were looked for `num_more` times."""
    wanted = stores.work.num_looks + num_more
    await eventually(lambda: stores.work.num_looks >= wanted)


async def test_a_clock_that_jumps_takes_no_batch_from_who_runs_it(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    gate, uptime = held_lines(world), TestClock(0.0)
    stores = looked_at(batch_stores, uptime)
    async with run_batches(world, stores):
        client = world.client()
        batch = await submit(client, jsonl(*map(line, range(NUM_LINES))))
        await eventually(lambda: len(world.chat.streams) == NUM_LINES)
        for jump_s in (3600, -7200, 3600):
            world.clock.advance(jump_s)
            await looks(stores, 3)
        gate.set()
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed) == ("completed", NUM_LINES)
    assert (await batch_stores.work.look(batch.id)).epoch == 1
    assert len(world.chat.streams) == NUM_LINES


async def test_a_batch_that_a_clock_ahead_of_all_others_claimed_is_taken_over(world, batch_stores, monkeypatch):
    world.principal(requests_per_minute=10_000)
    gate = held_lines(world)

    async def dies_without_a_word(coordinator, batch):
        return None

    ahead, uptime = TestClock(world.clock.now + 3600), TestClock(0.0)
    client = world.client()
    batch = await submit(client, jsonl(*map(line, range(NUM_LINES))))
    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "_release", dies_without_a_word)
        async with run_batches(world, looked_at(batch_stores, uptime, ahead), lease_s=15):
            await eventually(lambda: len(world.chat.streams) == NUM_LINES)
    assert (await batch_stores.work.look(batch.id)).lease_until > world.clock.now + 3600
    gate.set()
    stores = looked_at(batch_stores, uptime)
    async with run_batches(world, stores, lease_s=15):
        await looks(stores, 3)
        uptime.advance(14)
        await looks(stores, 3)
        assert (await batch_stores.work.look(batch.id)).epoch == 1
        uptime.advance(1)
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed) == ("completed", NUM_LINES)
    assert len(await lines_of(client, batch.output_file_id)) == NUM_LINES
    assert (await batch_stores.work.look(batch.id)).epoch == 2
    assert batch.usage.total_tokens == NUM_LINES * USAGE.total_tokens


async def counted(stores: Stores, batch_id: str, now: float) -> None:
    """Wait until the time of a batch has been counted up to `now`, as the wall clock has it."""
    async with asyncio.timeout(30):
        while (await stores.work.look(batch_id)).counted_at != now:  # noqa: ASYNC110 - it is in the database.
            await asyncio.sleep(0.02)


async def test_a_clock_that_jumps_by_days_expires_no_batch(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    gate, client = held_lines(world), world.client()
    batch = await submit(client, jsonl(*map(line, range(NUM_LINES))))
    async with run_batches(world, looked_at(batch_stores, TestClock(0.0)), lease_s=2):
        await eventually(lambda: len(world.chat.streams) == NUM_LINES)
        world.clock.advance(3 * DAY_S)
        await counted(batch_stores, batch.id, world.clock.now)
        assert (await client.batches.retrieve(batch.id)).status == "in_progress"
    gate.set()
    async with run_batches(world, looked_at(batch_stores, TestClock(0.0))):  # It only knows the later time.
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.completed) == ("completed", NUM_LINES)


async def test_a_clock_that_jumps_back_keeps_no_batch_alive(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    held_lines(world)
    client, uptime = world.client(), TestClock(0.0)
    batch = await submit(client, jsonl(*map(line, range(NUM_LINES))))
    async with run_batches(world, looked_at(batch_stores, uptime), lease_s=2):
        await eventually(lambda: len(world.chat.streams) == NUM_LINES)
        world.clock.advance(-3 * DAY_S)
        await counted(batch_stores, batch.id, world.clock.now)
        uptime.advance(DAY_S)
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.failed) == ("expired", NUM_LINES)


async def test_time_counts_while_everything_is_switched_off(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    held_lines(world)
    client = world.client()
    batch = await submit(client, jsonl(*map(line, range(NUM_LINES))))
    async with run_batches(world, looked_at(batch_stores, TestClock(0.0))):
        await eventually(lambda: len(world.chat.streams) == NUM_LINES)
    world.clock.advance(DAY_S)
    async with run_batches(world, looked_at(batch_stores, TestClock(0.0))):
        batch = await finish(client, batch)
    assert (batch.status, batch.request_counts.failed) == ("expired", NUM_LINES)
    assert len(world.chat.streams) == NUM_LINES
