"""The register of ingress replicas, and a replica that keeps itself in it."""

import asyncio
from itertools import chain, repeat
from unittest.mock import AsyncMock

from sqlalchemy.exc import OperationalError

from deployments.state.database.connection import Database
from deployments.state.ingress_replicas import LIVING_S, IngressRegister
from serve_app.front.addresses import Address
from serve_app.front.ingress import Registration
from serve_app.front.timings import FrontTimings
from tests.waiting import eventually

ONE, OTHER = "10.0.0.1:30000", "10.0.0.2:30000"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_replicas_are_listed_while_they_sign_in(database: Database) -> None:
    clock = Clock()
    register = IngressRegister(database, clock)
    await register.sign_in(ONE)
    await register.sign_in(OTHER)
    assert await register.living() == [ONE, OTHER]
    clock.now += LIVING_S
    await register.sign_in(ONE)
    assert await register.living() == [ONE, OTHER]
    assert await register.living(LIVING_S - 1) == [ONE]
    assert await register.sweep() == 0
    clock.now += 1
    assert await register.living() == [ONE]
    assert await register.sweep() == 1
    await register.sign_out(ONE)
    assert await register.living() == []


async def test_replica_signs_in_as_soon_as_it_listens_and_out_when_it_goes(database: Database) -> None:
    register = IngressRegister(database)
    await register.sign_in(OTHER)
    addresses = iter([None, None, Address("10.0.0.1", 30000)])
    one = Registration(register, lambda: next(addresses), FrontTimings(watch_s=0.01))
    one.watch()
    assert one.own() is None
    await eventually(lambda: one.others() == [ONE, OTHER])
    assert one.own() == ONE
    await one.close()
    assert await register.living() == [OTHER]


async def test_replica_without_a_port_of_its_own_stays_out(database: Database) -> None:
    register = IngressRegister(database)
    one = Registration(register, lambda: None, FrontTimings(watch_s=0.001))
    one.watch()
    await eventually(lambda: one._task is not None and one._task.done())
    await one.close()
    assert await register.living() == []


async def test_last_list_stays_while_the_database_is_away() -> None:
    away = OperationalError("", None, Exception())
    register = AsyncMock()
    register.living.side_effect = chain([[ONE, OTHER], away, away, away], repeat([ONE]))
    one = Registration(register, lambda: Address("10.0.0.1", 30000), FrontTimings(save_s=0.001))
    one.watch()
    lists = []
    while register.living.await_count < 6:
        await asyncio.sleep(0)
        lists.append((register.living.await_count, one.others()))
    assert {tuple(listed) for count, listed in lists if 1 < count < 5} == {(ONE, OTHER)}
    assert lists[-1] == (6, [ONE])
    register.sign_out.side_effect = away
    await one.close()
    await asyncio.sleep(0)
