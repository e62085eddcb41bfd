"""The gatekeeper's client while the gatekeeper is away, and when it has lost its account."""

import asyncio

import pytest

from deployments.limits.contract import Denied, GatekeeperUnavailable, Granted
from deployments.patience import USUAL
from tests.unit.limits.memory import World, admit, principal_of, secret_of, with_client


async def test_a_short_absence_is_waited_out_where_room_is_short() -> None:
    world = World(principal_of("key", 10))
    one, other = world.client(), world.client()
    for client in (one, other):
        principal = await client.identify(secret_of("key"))
    assert await admit(one, principal, 6) == [True] * 6
    assert await admit(other, principal) == [True]
    world.clock.advance(1)
    world.is_down = True
    waiting = [asyncio.create_task(client.admit(principal)) for client in (one, other)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert (one.counts["times_away"], other.counts["times_away"]) == (1, 1)
    world.is_down = False
    world.kill()
    assert [isinstance(await one, Granted) for one in waiting] == [True, True]
    assert await admit(one, principal, 2) == [True, False]
    assert one.counts["decided_alone"] + other.counts["decided_alone"] == 0


async def test_a_known_key_keeps_to_this_process_share_while_the_gatekeeper_is_away() -> None:
    world = World(principal_of("key", 10, 1_000))
    clients = [world.client() for _ in range(2)]
    for client in clients:
        principal = await client.identify(secret_of("key"))
        assert await admit(client, principal) == [True]
    await clients[0].tick()
    world.clock.advance(0.3)
    await clients[0].tick()
    world.is_down = True
    assert await admit(clients[0], principal, 6) == [True] * 4 + [False] * 2
    denied = await clients[0].admit(principal)
    assert isinstance(denied, Denied)
    assert (denied.limit, denied.used) == (10, 10)
    assert isinstance(await clients[0].reserve(principal, 501), Denied)
    assert isinstance(await clients[0].reserve(principal, 500), Granted)
    assert await clients[0].identify(secret_of("key")) == principal
    assert clients[0].counts["times_away"] == 1
    assert clients[0].counts["decided_alone"] >= 9


async def test_nobody_waits_for_a_gatekeeper_that_says_that_it_stops_but_for_the_last_room() -> None:
    world, client, principal = await with_client(10)
    await admit(client, principal, 3)
    world.clock.advance(1)
    world.is_stopping = True
    began = world.clock()
    assert await client.identify(secret_of("key")) == principal
    assert await admit(client, principal, 7) == [True] * 7
    assert world.clock() == began
    assert await admit(client, principal) == [False]
    assert world.clock() - began == pytest.approx(USUAL.back_soon_s, abs=0.06)
    assert await admit(client, principal) == [False]
    assert world.clock() - began == pytest.approx(USUAL.back_soon_s, abs=0.06)
    world.is_stopping = False
    world.kill()
    world.clock.advance(1)
    await client.tick()
    assert world.core.ledger.usage("key", world.clock()).used_requests == 10


@pytest.mark.parametrize(("silent_s", "num_tries", "waited_s"), [(0.0, 8, 0.3), (0.7, 2, 1.45)])
async def test_a_request_waits_until_a_second_try_fails(silent_s: float, num_tries: int, waited_s: float) -> None:
    world, client, principal = await with_client(10)
    await admit(client, principal, 3)
    world.is_down, world.silent_s = True, silent_s
    world.clock.advance(0.5)
    began, before = world.clock(), world.num_syncs
    assert await admit(client, principal) == [True]
    assert world.clock() - began == pytest.approx(waited_s, abs=0.06)
    assert client.counts["times_away"] == 1
    assert world.num_syncs - before == num_tries


@pytest.mark.parametrize(("num_before", "idle_s"), [(6, 0.5), (1, 10.0)])
async def test_a_request_waits_longer_where_others_may_have_the_room(num_before: int, idle_s: float) -> None:
    world, client, principal = await with_client(10)
    await admit(client, principal, num_before)
    world.is_down = True
    world.clock.advance(idle_s)
    began = world.clock()
    assert await admit(client, principal) == [True]
    assert world.clock() - began == pytest.approx(USUAL.away_after_s + USUAL.back_soon_s, abs=0.11)


async def test_who_came_while_the_gatekeeper_was_tried_does_not_wait_for_another_try() -> None:
    num_tries = []
    for has_second in (False, True):
        world, client, principal = await with_client(10)
        world.is_down = True
        world.clock.advance(1)
        before = world.num_syncs
        first = asyncio.create_task(client.identify(secret_of("key")))
        for _ in range(3):
            await asyncio.sleep(0)
        assert world.num_syncs > before
        assert client.counts["times_away"] == 0
        if has_second:
            assert await client.identify(secret_of("key")) == principal
        assert await first == principal
        num_tries.append(world.num_syncs - before)
    assert num_tries[0] == num_tries[1]


async def test_grants_made_alone_are_reported_when_the_gatekeeper_is_back() -> None:
    world, client, principal = await with_client(10, 1_000)
    world.is_down = True
    assert await admit(client, principal, 4) == [True] * 4
    granted = await client.reserve(principal, 500)
    client.settle(principal, granted=granted, reserved=500, used=200)
    world.is_down = False
    world.clock.advance(1)
    await client.tick()
    usage = world.core.ledger.usage("key", world.clock())
    assert (usage.used_requests, usage.used_tokens) == (4, 200)
    other = world.client()
    await other.identify(secret_of("key"))
    assert await admit(other, principal, 7) == [True] * 6 + [False]


async def test_a_gatekeeper_that_is_back_waits_for_each_client_that_it_remembers_but_not_for_long() -> None:
    world = World(principal_of("key", 10, 1_000))
    one, other = world.client(), world.client()
    for client in (one, other):
        principal = await client.identify(secret_of("key"))
        assert await admit(client, principal) == [True]

    world.kill()
    began = world.clock()
    asking = asyncio.create_task(one.admit(principal))
    while not asking.done():
        await asyncio.sleep(0)
        await other.tick()
    assert isinstance(await asking, Granted)
    assert world.clock() - began < 0.5

    world.kill()  # The other is gone, too.
    began = world.clock()
    assert await admit(one, principal) == [True]
    assert world.clock() - began == pytest.approx(USUAL.recovery_s, abs=0.06)


async def test_an_unknown_key_is_unavailable_while_the_gatekeeper_is_away() -> None:
    world = World(principal_of("key"), principal_of("other"))
    client = world.client()
    await client.identify(secret_of("key"))
    world.is_down = True
    with pytest.raises(GatekeeperUnavailable):
        await client.identify(secret_of("other"))
    assert await client.identify(secret_of("key")) is not None


async def test_a_known_key_works_for_five_minutes_and_is_unavailable_after_them() -> None:
    world = World(principal_of("key"))
    client = world.client()
    await client.identify(secret_of("key"))
    world.is_down = True
    world.clock.advance(1)
    await client.identify(secret_of("key"))
    world.clock.advance(299)
    assert await client.identify(secret_of("key")) is not None
    world.clock.advance(2)
    with pytest.raises(GatekeeperUnavailable):
        await client.identify(secret_of("key"))


async def test_the_first_request_is_unavailable_when_the_gatekeeper_never_answered() -> None:
    world = World(principal_of("key"))
    world.is_down = True
    client = world.client()
    start = world.clock()
    with pytest.raises(GatekeeperUnavailable):
        await client.identify(secret_of("key"))
    assert world.clock() - start == pytest.approx(USUAL.look_up_s, abs=0.1)


async def test_grants_are_reported_to_a_gatekeeper_that_lost_its_account() -> None:
    world = World(principal_of("key", 10, 1_000))
    clients = [world.client() for _ in range(2)]
    for client in clients:
        principal = await client.identify(secret_of("key"))
        await admit(client, principal, 4)
    granted = await clients[0].reserve(principal, 600)
    clients[0].settle(principal, granted=granted, reserved=600, used=100)
    lost_since = world.clock() - 1
    world.lose(lost_since)
    world.clock.advance(0.3)
    await asyncio.gather(*(client.tick() for client in clients))
    assert await admit(clients[1], principal, 3) == [True, True, False]
    usage = world.core.ledger.usage("key", world.clock())
    assert (usage.used_requests, usage.used_tokens) == (10, 100)
    assert [client.counts["replays"] for client in clients] == [1, 1]


async def test_a_refund_is_not_taken_from_others_while_charges_are_missing() -> None:
    world = World(principal_of("key", 10, 1_000))
    one, other = world.client(), world.client()
    principal = await one.identify(secret_of("key"))
    await other.identify(secret_of("key"))
    granted = await one.reserve(principal, 400)
    kept = await other.reserve(principal, 500)
    assert isinstance(kept, Granted)
    world.lose(world.clock() - 1)
    await other.tick()
    world.clock.advance(0.3)
    await other.tick()
    one.settle(principal, granted=granted, reserved=400, used=100)
    await one.tick()
    assert world.core.ledger.usage("key", world.clock()).used_tokens == 600


async def test_nothing_is_granted_while_clients_tell_what_they_were_granted() -> None:
    world, client, principal = await with_client(10)
    world.lose(world.clock())
    before = world.clock()
    assert await admit(client, principal) == [True]
    assert world.clock() - before >= 1.0
