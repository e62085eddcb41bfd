"""The gatekeeper's client: keys that it knows, leases that it holds, and when it asks."""

import asyncio
import random

import pytest

from deployments.limits.client.gatekeeper_client import TICK_S, GatekeeperClient
from deployments.limits.client.leases import DENIAL_S
from deployments.limits.contract import Denied, Granted
from deployments.limits.messages import Identified
from deployments.patience import USUAL
from deployments.state.identity.principal import Principal
from tests.unit.limits.memory import World, admit, principal_of, secret_of, stored, with_client


async def test_a_cached_key_costs_no_question() -> None:
    world = World(principal_of("key"))
    client = world.client()
    for _ in range(100):
        assert await client.identify(secret_of("key")) == principal_of("key")
    assert (world.num_identified, world.num_syncs) == (1, 1)


async def test_what_cannot_be_a_key_costs_no_question() -> None:
    world = World()
    client = world.client()
    for secret in ("", "sk-other", "sk-manta-" + "x" * 200, "sk-manta-ü"):
        assert await client.identify(secret) is None
    assert (world.num_identified, world.num_syncs) == (0, 0)


async def test_a_revoked_key_is_refused_within_a_second() -> None:
    world = World(principal_of("key"))
    client = world.client()
    assert await client.identify(secret_of("key")) is not None
    world.change(stored(2, "key", None))
    world.clock.advance(USUAL.trust_s)
    assert await client.identify(secret_of("key")) is None


async def test_changed_limits_hold_within_a_second() -> None:
    world, client, principal = await with_client(1)
    assert await admit(client, principal, 2) == [True, False]
    world.change(stored(2, "key", principal_of("key", requests=3)))
    world.clock.advance(USUAL.trust_s)
    principal = await client.identify(secret_of("key"))
    assert principal.requests_per_minute == 3
    assert await admit(client, principal, 3) == [True, True, False]


async def test_an_unknown_key_that_comes_to_exist_is_accepted() -> None:
    world = World()
    client = world.client()
    assert await client.identify(secret_of("new")) is None
    assert await client.identify(secret_of("new")) is None
    assert world.num_identified == 1
    world.change(stored(2, "new", principal_of("new")))
    world.clock.advance(USUAL.trust_s)
    assert await client.identify(secret_of("new")) == principal_of("new")


@pytest.mark.parametrize(("known_after", "num_looks"), [(2, 3), (9, 4)])
async def test_a_key_that_could_not_be_looked_for_is_asked_for_again(known_after: int, num_looks: int) -> None:
    world = World()
    client = world.client()
    num_asked = 0

    async def identify(digest: bytes) -> Identified:
        nonlocal num_asked
        if num_asked == known_after:
            world.change(stored(2, "new", principal_of("new")))
        num_asked += 1
        identified = world.core.identify(digest)
        return identified._replace(is_certain=identified.principal is not None)

    world.identify = identify  # type: ignore[method-assign]
    assert (await client.identify(secret_of("new")) is not None) == (num_looks > known_after)
    assert num_asked == num_looks


async def test_many_who_ask_for_one_key_ask_once() -> None:
    world = World(principal_of("key"))
    client = world.client()
    await client.identify(secret_of("nobody"))
    world.num_identified = 0
    found = await asyncio.gather(*(client.identify(secret_of("key")) for _ in range(50)))
    assert found == [principal_of("key")] * 50
    assert world.num_identified == 1


async def test_the_old_secret_of_a_rotated_key_holds_until_its_overlap_ends() -> None:
    world = World(principal_of("old"))
    client = world.client()
    await client.identify(secret_of("old"))
    rotated = stored(2, "new", principal_of("old"), previous="old")
    world.change(rotated.__class__(**{**rotated.__dict__, "key_id": "old", "previous_expires_at": world.clock() + 10}))
    world.clock.advance(1)
    assert await client.identify(secret_of("old")) is not None
    assert await client.identify(secret_of("new")) is not None
    world.clock.advance(9)
    assert await client.identify(secret_of("old")) is None
    assert await client.identify(secret_of("new")) is not None


async def test_a_lookup_that_is_older_than_a_known_change_is_asked_again() -> None:
    world = World(principal_of("key"), principal_of("other"))
    client = world.client()
    await client.identify(secret_of("other"))
    late = world.core.identify(client._keys.digest(secret_of("key")))
    world.change(stored(2, "key", None))
    await client._sync_loop.sync()
    answers = [late]
    ask = world.identify

    async def identify(digest: bytes):
        return answers.pop() if answers else await ask(digest)

    world.identify = identify  # type: ignore[method-assign]
    assert await client.identify(secret_of("key")) is None


async def test_warm_leases_serve_most_requests_of_a_busy_key() -> None:
    world, client, principal = await with_client(1_000_000, 10**12)
    for _ in range(3_000):
        granted = await client.reserve(principal, 500)
        assert isinstance(await client.admit(principal), Granted)
        client.settle(principal, granted=granted, reserved=500, used=400)
        world.clock.advance(0.001)
    assert world.num_syncs < 150


async def test_a_small_key_gets_exactly_what_it_asks_for_from_every_client() -> None:
    world = World(principal_of("key", 10))
    clients = [world.client() for _ in range(5)]
    principal = await clients[0].identify(secret_of("key"))
    results = [await admit(client, principal, 2) for client in clients]
    assert results == [[True, True]] * 5
    assert await admit(clients[3], principal) == [False]


async def test_a_denial_is_remembered_for_a_moment_only() -> None:
    world = World(principal_of("key", 10, 1_000))
    one, other = world.client(), world.client()
    principal = await one.identify(secret_of("key"))
    granted = await one.reserve(principal, 900)
    first = await other.reserve(principal, 500)
    before = world.num_syncs
    again = await other.reserve(principal, 600)
    assert world.num_syncs == before
    assert isinstance(first, Denied)
    assert again == Denied("tokens", 1_000, 900, 600, first.retry_after_s)
    assert isinstance(await other.reserve(principal, 100), Granted)
    one.settle(principal, granted=granted, reserved=900, used=0)
    await one.tick()
    world.clock.advance(DENIAL_S)
    assert isinstance(await other.reserve(principal, 600), Granted)


async def test_what_a_lease_did_not_use_comes_back_when_it_ends() -> None:
    world, client, principal = await with_client(1_000, 10**9)
    await admit(client, principal, 20)
    held = world.core.ledger.usage("key", world.clock()).used_requests
    assert held > 20
    assert client.quota(principal).remaining_requests == 980
    world.clock.advance(0.5)
    await client.tick()
    assert world.core.ledger.usage("key", world.clock()).used_requests == 20


async def test_a_refund_whose_reply_is_lost_is_applied_once() -> None:
    world = World(principal_of("key", 10, 1_000))
    one, other = world.client(), world.client()
    principal = await one.identify(secret_of("key"))
    await other.identify(secret_of("key"))
    kept = await other.reserve(principal, 300)
    granted = await one.reserve(principal, 700)
    assert isinstance(kept, Granted)
    one.settle(principal, granted=granted, reserved=700, used=500)
    world.loses_replies = True
    await one.tick()
    assert world.core.ledger.usage("key", world.clock()).used_tokens == 800


async def test_a_refund_is_applied_once_when_the_gatekeeper_is_killed_after_it() -> None:
    world, client, principal = await with_client(10, 1_000)
    granted = await client.reserve(principal, 700)
    client.settle(principal, granted=granted, reserved=700, used=500)
    sync = world.sync

    async def sync_and_die(message):
        await sync(message)
        world.kill()
        world.sync = sync  # type: ignore[method-assign]
        world.is_down, world.loses_replies = False, True
        return await sync(message)

    world.sync = sync_and_die  # type: ignore[method-assign]
    await client.tick()
    assert world.core.ledger.usage("key", world.clock()).used_tokens == 500


async def test_a_lease_that_arrives_after_its_end_is_given_back_and_asked_for_again() -> None:
    world, client, principal = await with_client(10)
    world.latency_s = 0.25
    assert await admit(client, principal) == [True]
    assert client.counts["late_leases"] == 1
    await client.tick()
    assert world.core.ledger.usage("key", world.clock()).used_requests == 1


async def test_a_request_that_is_cancelled_while_it_waits_leaves_its_room_to_others() -> None:
    _, client, principal = await with_client(1)
    waiting = asyncio.create_task(client.admit(principal))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await client.tick()
    assert await admit(client, principal) == [True]
    assert await admit(client, principal) == [False]


async def test_closing_gives_everything_back() -> None:
    world, client, principal = await with_client(1_000, 10**9)
    await admit(client, principal, 20)
    await client.close()
    assert world.core.ledger.usage("key", world.clock()).used_requests == 20


async def test_idle_keys_are_forgotten() -> None:
    world, client, principal = await with_client()
    await admit(client, principal)
    world.clock.advance(0.5)
    await client.tick()
    assert client._leases._keys
    world.clock.advance(200)
    await client.tick()
    assert not client._leases._keys
    world.core.sweep()
    assert not world.core.ledger.key_ids()


async def test_the_background_task_ends_when_nothing_happens_any_more() -> None:
    world = World(principal_of("key"))
    client = world.client()
    client._background = True
    principal = await client.identify(secret_of("key"))
    await admit(client, principal)
    assert client._ticking is not None
    for _ in range(5_000):
        await asyncio.sleep(0)
    assert client._ticking is None
    assert world.clock() > 1_700_000_062
    assert await client.identify(secret_of("key")) is not None
    await client.close()


async def test_a_key_revoked_between_being_known_and_asking_is_asked_to_come_back() -> None:
    world, client, principal = await with_client()
    world.change(stored(2, "key", None))
    assert await client.admit(principal) == Denied("requests", 0, 0, 1, 1.0)


@pytest.mark.parametrize(("per_second", "most"), [(1, 0.4), (4, 0.15), (20, 0.05)])
async def test_requests_that_come_one_by_one_seldom_wait_for_a_lease(per_second: float, most: float) -> None:
    world, client, principal = await with_client(10_000, 10**9)
    rng, num_waits, num_requests = random.Random(1), 0, 400
    for _ in range(num_requests):
        await pass_time(world, client, rng.expovariate(per_second))
        before = client.counts["leases"]
        assert await admit(client, principal) == [True]
        assert isinstance(await client.reserve(principal, rng.randint(300, 330)), Granted)
        num_waits += client.counts["leases"] > before
    assert num_waits < most * num_requests


async def test_leases_of_a_key_that_is_in_use_are_renewed_before_they_end() -> None:
    world, client, principal = await with_leases()
    num_used = 1
    for _ in range(20):
        await pass_time(world, client, 0.3)
        before = client.counts["leases"]
        assert await admit(client, principal) == [True]
        assert isinstance(await client.reserve(principal, 300), Granted)
        assert client.counts["leases"] == before
        num_used += 1
        assert client.quota(principal).remaining_requests == 10_000 - num_used
    usage = world.core.ledger.usage("key", world.clock())
    assert num_used < usage.used_requests <= num_used + 4  # What is held, and what a lease before it left.


async def test_leases_of_a_key_that_is_not_used_any_more_end() -> None:
    world, client, _ = await with_leases()
    await pass_time(world, client, 2.0)
    usage = world.core.ledger.usage("key", world.clock())
    assert (usage.used_requests, usage.used_tokens) == (1, 300)
    before = client.counts["leases"]
    await pass_time(world, client, 10.0)
    assert client.counts["leases"] == before


async def test_a_lease_that_cannot_be_renewed_takes_nothing_away() -> None:
    world = World(principal_of("key", 200, 10**9))
    one, other = world.client(), world.client()
    principal = await one.identify(secret_of("key"))
    await other.identify(secret_of("key"))
    assert await admit(one, principal, 100) == [True] * 100
    num_admitted = 100
    for _ in range(200):
        await pass_time(world, one, 0.05)
        await pass_time(world, other, 0.05)
        num_admitted += sum(await admit(one, principal)) + sum(await admit(other, principal))
    assert num_admitted == 200


async def test_while_the_gatekeeper_is_away_nothing_is_renewed() -> None:
    world, client, principal = await with_client(10_000, 10**9)
    await admit(client, principal)
    world.is_down = True
    await pass_time(world, client, 5.0)
    assert await admit(client, principal) == [True]
    world.is_down = False
    await pass_time(world, client, 2.0)
    assert world.core.ledger.usage("key", world.clock()).used_requests == 2
    assert await admit(client, principal) == [True]


async def test_room_that_one_got_beyond_its_need_is_there_for_those_who_asked_with_it() -> None:
    _, client, principal = await with_client(200)
    decisions = await asyncio.gather(*(client.admit(principal) for _ in range(300)))
    assert sum(isinstance(one, Granted) for one in decisions) == 200


async def with_leases() -> tuple[World, GatekeeperClient, Principal]:
    """Return a client that holds leases of both kinds, after one request of 300 tokens."""
    world, client, principal = await with_client(10_000, 10**9)
    assert await admit(client, principal) == [True]
    assert isinstance(await client.reserve(principal, 300), Granted)
    return world, client, principal


async def pass_time(world: World, client: GatekeeperClient, seconds: float) -> None:
    while seconds > 0:
        world.clock.advance(min(seconds, TICK_S))
        seconds -= TICK_S
        await client.tick()
