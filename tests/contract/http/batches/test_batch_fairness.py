"""Many batches of several accounts at once: who has its turn when, by the order in which lines meet the engine."""

import asyncio
from dataclasses import replace

from batch.config import MAX_RUNNING
from tests.contract.http.batch_calls import OTHER, finish, jsonl, line, submit
from tests.contract.http.conftest import run_batches
from tests.twins.engine import ScriptedEngine
from tests.waiting import eventually

NUM_BATCHES, NUM_LINES, NUM_IN_FLIGHT = 10, 40, 4


def owners(engine: ScriptedEngine) -> list[int]:
    """The batch of each line, in the order in which the engine met them."""
    return [int(request.body.split(b"batch ", 1)[1].split(b" ", 1)[0]) for request in engine.requests]


async def test_ten_batches_of_two_accounts_take_turns(world, batch_stores):
    world.principal(requests_per_minute=10_000)
    world.principal(OTHER, key_id="key-2", account="acct-2", requests_per_minute=10_000)
    clients = [world.client(), world.client(OTHER)]
    all_wait, script = asyncio.Event(), world.chat.script
    world.chat.script = lambda request: replace(script(request), steps=[all_wait, *script(request).steps])
    async with run_batches(world, batch_stores, max_lines_in_flight=NUM_IN_FLIGHT) as batching:
        submitted = []
        for number in range(NUM_BATCHES):
            lines = [line(f"batch {number} line {place}") for place in range(NUM_LINES)]
            submitted.append(await submit(clients[number * 2 // NUM_BATCHES], jsonl(*lines)))
        waiting = batching.worker.limiter._waiting
        await eventually(lambda: sum(len(turns) for turns in waiting.values()) == NUM_BATCHES)
        all_wait.set()
        for number, batch in enumerate(submitted):
            ended = await finish(clients[number * 2 // NUM_BATCHES], batch)
            assert ended.request_counts.completed == NUM_LINES
    order = owners(world.chat)
    assert len(order) == NUM_BATCHES * NUM_LINES
    rest = order[NUM_IN_FLIGHT:]  # The first were let in before the others had come.
    for start in range(0, len(rest) - 100, 10):
        turns = rest[start : start + 20]
        first = sum(number < NUM_BATCHES // 2 for number in turns)
        assert 8 <= first <= 12  # Each second line is the other account's, or nearly.
        assert set(turns) == set(range(NUM_BATCHES))  # And each of its batches gets on.


async def test_as_many_batches_as_run_at_a_time_keep_no_other_account_from_its_first(world, batch_stores, monkeypatch):
    monkeypatch.setattr("batch.coordinator.MAX_RUNNING_IN_ALL", MAX_RUNNING + 2)
    world.principal(requests_per_minute=10_000)
    clients = []
    for number in range(3):
        world.principal(f"sk-{number}", key_id=f"key-{number}", account=f"acct-{number}", requests_per_minute=10_000)
        clients.append(world.client(f"sk-{number}"))
    goes_on, script = asyncio.Event(), world.chat.script
    world.chat.script = lambda request: replace(script(request), steps=[goes_on, *script(request).steps])
    async with run_batches(world, batch_stores):
        hers = [await submit(world.client(), jsonl(line(f"batch {n} line 0"))) for n in range(MAX_RUNNING)]
        await eventually(lambda: len(world.chat.requests) == MAX_RUNNING)
        first, second, third = [await submit(client, jsonl(line("batch 90 line 0"))) for client in clients]
        again = await submit(clients[0], jsonl(line("batch 91 line 0")))
        await eventually(lambda: len(world.chat.requests) == MAX_RUNNING + 2)
        await asyncio.sleep(0.1)
        waiting = [await clients[place].batches.retrieve(one.id) for place, one in ((0, again), (2, third))]
        assert [one.status for one in waiting] == ["validating"] * 2
        goes_on.set()
        for client, batch in [
            *((world.client(), one) for one in hers),
            *zip(clients, (first, second, third), strict=True),
        ]:
            assert (await finish(client, batch)).request_counts.completed == 1
