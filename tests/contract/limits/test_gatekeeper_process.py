import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.key_cache import StoredKeys
from deployments.limits.contract import GatekeeperUnavailable, Granted
from deployments.limits.core import GatekeeperCore
from deployments.limits.gatekeeper import GatekeeperProcess, Intervals, fingerprint
from deployments.limits.messages import Ask, Posting, Stopping, SyncReply, SyncRequest, TransportDown
from deployments.patience import USUAL
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.identity.principal import Principal
from tests.contract.state.far_server import far_away
from tests.contract.state.processes import DirectTransport, kill, resolved, start
from tests.patience import PATIENT
from tests.twins.gatekeeper import TestClock
from tests.waiting import eventually

GONE = replace(PATIENT, recovery_s=0.1)
"""For gatekeepers whose clients are gone, and have reported everything."""


@dataclass
class Service:
    state: ResolvedState
    gatekeeper: GatekeeperProcess
    database: Database
    keys: KeyStore

    def client(self, clock: Callable[[], float] = time.monotonic) -> GatekeeperClient:
        transport = DirectTransport(self.gatekeeper)
        return GatekeeperClient(transport, self.state.pepper, patience=PATIENT, clock=clock, background=False)

    def start_again(self, recovery_s: float = GONE.recovery_s) -> None:
        self.gatekeeper = start(replace(self.state, patience=replace(PATIENT, recovery_s=recovery_s)))


@pytest.fixture
async def service(database_url: str, tmp_path: Path) -> AsyncIterator[Service]:
    state = replace(resolved(database_url, tmp_path / "state"), patience=GONE)
    database = await connect(database_url)
    service = Service(state, start(state), database, KeyStore(database, state.pepper))
    yield service
    service.gatekeeper.stop()
    await database.close()


async def identified(client: GatekeeperClient, secret: str) -> Principal:
    principal = await client.identify(secret)
    assert principal is not None
    return principal


async def test_a_key_is_accepted_as_soon_as_it_is_made(service: Service) -> None:
    await asyncio.sleep(0.2)
    client = service.client()
    for _ in range(3):
        key, secret = await service.keys.create(NewKey())
        assert (await identified(client, secret)).key_id == key.key_id
        await asyncio.sleep(0.11)


async def test_a_revoked_key_is_refused_after_a_poll_and_a_sync(service: Service) -> None:
    clock = TestClock()
    client = service.client(clock)
    key, secret = await service.keys.create(NewKey())
    await identified(client, secret)
    await service.keys.revoke(key.key_id)
    await eventually(lambda: core_of(service).identify(client.digest(secret)).principal is None)
    clock.advance(USUAL.trust_s)
    assert await client.identify(secret) is None
    assert Intervals().key_poll_s + USUAL.trust_s < 1.0  # What it takes at most, beside both answers.


def core_of(service: Service) -> GatekeeperCore:
    assert service.gatekeeper._core is not None
    return service.gatekeeper._core


async def test_unknown_keys_do_not_reach_the_database_at_any_rate(service: Service) -> None:
    polls = 0
    poll = service.gatekeeper._poll_keys

    async def counted() -> None:
        nonlocal polls
        polls += 1
        await poll()

    service.gatekeeper._poll_keys = counted  # type: ignore[method-assign]
    started = time.monotonic()
    for index in range(300):
        service.gatekeeper.identify(index.to_bytes(32, "big"))
    assert polls <= (time.monotonic() - started) * (1 / 0.1 + 1 / 0.05) + 2


async def test_a_key_is_accepted_far_from_the_primary_as_soon_as_it_is_made(postgres_url: str, tmp_path: Path) -> None:
    async with far_away(postgres_url) as (url, server):
        state = replace(resolved(url, tmp_path / "state"), patience=PATIENT)
        gatekeeper = await asyncio.to_thread(GatekeeperProcess, state, Intervals(3600.0, 3600.0, 3600.0))
        server.one_way_s = 0.075
        database = await connect(postgres_url)
        client = GatekeeperClient(DirectTransport(gatekeeper), state.pepper, patience=PATIENT, background=False)
        store = KeyStore(database, state.pepper)
        for _ in range(3):
            key, secret = await store.create(NewKey())
            await asyncio.sleep(0.11)
            before = server.num_trips
            assert (await identified(client, secret)).key_id == key.key_id
        assert server.num_trips - before == 1

        def ask_for_made_up_keys() -> tuple[int, float]:
            began, before = time.monotonic(), server.num_trips
            for index in range(40):
                gatekeeper.identify(index.to_bytes(32, "big"))
            return server.num_trips - before, time.monotonic() - began

        num_looks, took_s = await asyncio.to_thread(ask_for_made_up_keys)
        assert num_looks <= 1 + took_s / (0.1 + 0.15)
        server.one_way_s = 0.0
        await asyncio.to_thread(gatekeeper.stop)
        await database.close()


async def test_a_key_that_nobody_can_look_for_is_not_said_to_be_unknown(postgres_url: str, tmp_path: Path) -> None:
    async with far_away(postgres_url) as (url, server):
        hasty = replace(PATIENT, look_s=0.2, look_pause_s=0.1, stored_key_s=0.2, look_up_s=0.5)
        state = replace(resolved(url, tmp_path / "state"), patience=hasty)
        gatekeeper = await asyncio.to_thread(GatekeeperProcess, state)
        near, far = await connect(postgres_url), await connect(url)
        store, stored_keys = KeyStore(near, state.pepper), StoredKeys(KeyStore(far, state.pepper), hasty)
        transport = DirectTransport(gatekeeper)

        def new_client() -> GatekeeperClient:
            return GatekeeperClient(transport, state.pepper, stored_keys=stored_keys, patience=hasty, background=False)

        client = new_client()
        _, known = await store.create(NewKey())
        await eventually(partial(_is, "found", client, known))
        server.link.clear()
        _, new = await store.create(NewKey())
        assert await asyncio.gather(_found(client, new), _found(client, "sk-manta-made-up")) == ["nobody can tell"] * 2
        other = new_client()
        assert await other.identify(known) is not None
        assert await other.can_check_keys()
        server.link.set()
        await eventually(partial(_is, "found", client, new))
        await eventually(partial(_is, "none", client, "sk-manta-made-up"))
        await asyncio.to_thread(gatekeeper.stop)
        await near.close()
        await far.close()


async def _is(wanted: str, client: GatekeeperClient, secret: str) -> bool:
    return await _found(client, secret) == wanted


async def _found(client: GatekeeperClient, secret: str) -> str:
    try:
        return "none" if await client.identify(secret) is None else "found"
    except GatekeeperUnavailable:
        return "nobody can tell"


async def test_the_account_is_exact_after_a_kill(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    client = service.client()
    principal = await identified(client, secret)
    for _ in range(4):
        assert isinstance(await client.admit(principal), Granted)
    granted = await client.reserve(principal, 30_000)
    assert isinstance(granted, Granted)
    client.settle(principal, granted=granted, reserved=30_000, used=10_000)
    await client.close()
    kill(service.gatekeeper)
    service.start_again()
    client = service.client()
    assert [isinstance(await client.admit(principal), Granted) for _ in range(7)] == [True] * 6 + [False]
    assert isinstance(await client.reserve(principal, 30_001), type(await client.admit(principal)))
    assert isinstance(await client.reserve(principal, 30_000), Granted)


async def test_the_account_is_exact_after_a_snapshot_and_a_kill(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    client = service.client()
    principal = await identified(client, secret)
    gatekeeper = service.gatekeeper
    for round_of_two in range(3):
        assert isinstance(await client.admit(principal), Granted)
        await asyncio.to_thread(gatekeeper._background.run, gatekeeper._snapshot())
        assert isinstance(await client.admit(principal), Granted), round_of_two
    await client.close()  # On a slow machine a lease may have come too late, and is owed still.
    kill(gatekeeper)
    service.start_again()
    client = service.client()
    assert [isinstance(await client.admit(principal), Granted) for _ in range(5)] == [True] * 4 + [False]


async def test_the_account_is_exact_after_two_kills_without_a_snapshot_between(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    principal = await identified(service.client(), secret)
    for _ in range(3):
        client = service.client()
        for _ in range(3):
            assert isinstance(await client.admit(principal), Granted)
        await client.close()
        kill(service.gatekeeper)
        service.start_again()
    client = service.client()
    assert [isinstance(await client.admit(principal), Granted) for _ in range(2)] == [True, False]


async def test_postings_are_applied_once_across_a_kill(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    principal = await identified(service.client(), secret)
    first = SyncRequest("a-client", 1, 0, 0.4, [Ask(principal.key_id, 0, 20_000)], [], [])
    (lease,) = service.gatekeeper.sync(first).answers or []
    refund = Posting(principal.key_id, "tokens", lease.at, 5_000)  # type: ignore[union-attr]
    told = SyncRequest("a-client", 2, 0, 0.4, [], [refund], [])
    assert service.gatekeeper.sync(told).usage[principal.key_id].used_tokens == 15_000
    kill(service.gatekeeper)
    service.start_again()
    assert service.gatekeeper.sync(told).usage[principal.key_id].used_tokens == 15_000


async def test_clients_tell_what_they_were_granted_when_the_journal_is_gone(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    client = service.client()
    principal = await identified(client, secret)
    for _ in range(6):
        assert isinstance(await client.admit(principal), Granted)
    kill(service.gatekeeper)
    shutil.rmtree(service.state.state_dir / "limiter")
    service.start_again(USUAL.recovery_s)
    client._sync_loop._transport = DirectTransport(service.gatekeeper)
    assert [isinstance(await client.admit(principal), Granted) for _ in range(5)] == [True] * 4 + [False]
    assert client.counts["replays"] == 1


async def test_an_orderly_end_saves_everything(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    client = service.client()
    principal = await identified(client, secret)
    for _ in range(10):
        assert isinstance(await client.admit(principal), Granted)
    service.gatekeeper.stop()
    service.start_again()
    assert not isinstance(await service.client().admit(principal), Granted)


async def test_one_that_stopped_in_peace_goes_on_on_another_node_once_its_clients_have_reported(
    service: Service,
) -> None:
    key, _ = await service.keys.create(NewKey())
    await asyncio.to_thread(service.gatekeeper.refresh_keys)
    charge = Posting(key.key_id, "tokens", time.time(), 40_000)
    service.gatekeeper.sync(SyncRequest("a-client", 1, 0, 0.4, [], [], [charge]))
    refund = SyncRequest("a-client", 2, 0, 0.4, [Ask(key.key_id, 1, 0)], [charge._replace(amount=30_000)], [])
    service.gatekeeper.sync(refund)
    service.gatekeeper.stop()
    with pytest.raises(Stopping):
        service.gatekeeper.sync(refund)

    def start_elsewhere() -> SyncReply:
        shutil.rmtree(service.state.state_dir / "limiter")
        service.start_again(PATIENT.recovery_s)
        return service.gatekeeper.sync(refund)

    reply = start_elsewhere()
    assert (reply.answers, reply.replay_after) == (None, None)
    assert reply.usage[key.key_id].used_tokens == 10_000  # The refund counted before.
    reply = service.gatekeeper.sync(refund._replace(serial=3, refunds=[]))
    assert reply.answers is not None
    kill(service.gatekeeper)
    reply = start_elsewhere()
    assert reply.answers is None
    assert reply.replay_after is not None


async def test_old_segments_of_the_journal_are_dropped(service: Service) -> None:
    gatekeeper = service.gatekeeper
    for _ in range(5):
        await asyncio.to_thread(gatekeeper._background.run, gatekeeper._snapshot())
    assert len(list((service.state.state_dir / "limiter").iterdir())) == 1


async def test_a_cut_off_line_of_the_journal_is_left_out(service: Service) -> None:
    _, secret = await service.keys.create(NewKey())
    client = service.client()
    principal = await identified(client, secret)
    await client.admit(principal)
    await client.close()
    kill(service.gatekeeper)
    (segment,) = (service.state.state_dir / "limiter").iterdir()
    with segment.open("a") as file:
        file.write(f"r 99 {principal.key_id} 17")
    service.start_again()
    client = service.client()
    assert [isinstance(await client.admit(principal), Granted) for _ in range(10)] == [True] * 9 + [False]


async def test_a_gatekeeper_without_its_database_says_so_and_comes_up_with_it(tmp_path: Path) -> None:
    directory = tmp_path / "later"
    state = resolved(f"sqlite+aiosqlite:///{directory / 'manta.db'}", tmp_path / "state")
    directory.write_text("a file where a directory belongs")
    gatekeeper = GatekeeperProcess.__new__(GatekeeperProcess)
    started = asyncio.create_task(asyncio.to_thread(gatekeeper.__init__, state))  # type: ignore[misc]
    await asyncio.sleep(0.3)
    with pytest.raises(TransportDown):
        gatekeeper.identify(b"x" * 32)
    directory.unlink()
    await started
    assert gatekeeper.identify(b"x" * 32).principal is None
    gatekeeper.stop()


def test_a_configuration_is_known_by_its_fingerprint(tmp_path: Path) -> None:
    one = resolved("sqlite+aiosqlite:////a", tmp_path)
    assert fingerprint(one) == fingerprint(resolved("sqlite+aiosqlite:////a", tmp_path))
    assert fingerprint(one) != fingerprint(resolved("sqlite+aiosqlite:////b", tmp_path))
    assert one.pepper.decode() not in repr(one)
    assert "/a" not in repr(one.database_url[:0])
