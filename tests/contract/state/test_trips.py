"""How often a database an ocean away is crossed to: once for what a client waits for."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import insert, select

from deployments.state.database.connection import connect
from deployments.state.database.tables.responses import responses
from deployments.state.database.tables.service import regions
from tests.contract.state.far_server import FarServer, far_away
from tests.contract.state.turns import DAY, ME, Stores, over, save, turn
from tests.twins.gatekeeper import TestClock


@pytest.fixture
async def far(postgres_url: str) -> AsyncIterator[tuple[Stores, FarServer]]:
    async with far_away(postgres_url) as (url, server):
        database = await connect(url)
        yield over(database, TestClock()), server
        await database.close()


async def trips_of(server: FarServer, work) -> int:
    """Return the trips of `work` on a connection that has done the same before."""
    await work(0)
    before = server.num_trips
    await work(1)
    return server.num_trips - before


async def test_finished_turn_is_stored_in_one_trip(far: tuple[Stores, FarServer]) -> None:
    stores, server = far
    assert await trips_of(server, lambda n: save(stores, f"a{n}")) == 1
    assert await trips_of(server, lambda n: save(stores, f"b{n}", "a1")) == 1
    assert server.num_connections == 1
    for name in ("a0", "a1", "b0", "b1"):
        assert await stores.responses.load(ME, f"resp_{name}") == turn(name, "a1" if name[0] == "b" else None)


async def test_turn_of_a_conversation_is_stored_in_one_trip(far: tuple[Stores, FarServer]) -> None:
    stores, server = far
    kept = await stores.conversations.create(ME, {}, [], expires_at=stores.clock() + DAY)
    assert await trips_of(server, lambda n: save(stores, f"a{n}", conversation_id=kept.id)) == 1
    items = [item["id"] for item in await stores.conversations.all_items(ME, kept.id)]
    assert items == ["msg_a0_in", "msg_a0_out", "msg_a1_in", "msg_a1_out"]


async def test_history_is_read_in_one_trip(far: tuple[Stores, FarServer]) -> None:
    stores, server = far
    await save(stores, "a")
    await save(stores, "b", "a")
    assert await trips_of(server, lambda n: stores.responses.chain(ME, "resp_b")) == 1
    assert await trips_of(server, lambda n: stores.responses.load(ME, "resp_a")) == 1


async def test_transaction_takes_a_trip_for_each_statement_its_begin_and_its_commit(
    far: tuple[Stores, FarServer],
) -> None:
    stores, server = far

    async def write(number: int) -> None:
        async with stores.database.write() as connection:
            await connection.execute(insert(regions).values(name=f"r{number}", seen_at=1.0, facts={}))
            await connection.execute(select(regions.c.name))

    assert await trips_of(server, write) == 4


async def test_turn_does_not_wait_for_the_trip_of_another(postgres_url: str) -> None:
    async with far_away(postgres_url) as (url, server):
        database = await connect(url)
        stores = over(database, TestClock())
        await asyncio.gather(*(database.read_at_once(lambda c: c.execute(select(responses))) for _ in range(2)))
        await save(stores, "a")
        await save(stores, "b")
        server.one_way_s = 0.2
        before = server.num_trips
        first = asyncio.create_task(save(stores, "c"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(save(stores, "d"))
        await asyncio.wait({first}, return_when=asyncio.FIRST_COMPLETED)
        assert server.num_trips == before + 2
        await second
        assert server.num_trips == before + 2
        server.one_way_s = 0.0
        await database.close()
