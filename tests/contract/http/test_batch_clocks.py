"""Clocks that jump while coordinators work: nobody loses a batch by it, and nobody keeps one beyond its end."""

import asyncio
from dataclasses import replace

from batch.coordinator import Coordinator
from batch.stores import Stores, create_stores
from deployments.state.batch_work import BatchWork
from deployments.state.batches import BatchStore
from tests.contract.http.answers import USAGE, answer
from tests.contract.http.conftest import World, run_batches
from tests.contract.http.test_batches import finish, jsonl, line, lines_of, submit
from tests.twins.engine import Script
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually

NUM_LINES = 6


class CountedClaims(BatchWork):
    """Counts how often it was looked for a batch to claim."""

    num_looks = 0

    async def claim(self, lease_s, running=()):
        self.num_looks += 1
        return await super().claim(lease_s, running)


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
    """Wait until it was looked for a batch so many times more."""
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
