"""The gatekeeper as a real actor: killed, restarted, reconfigured, and asked by several clients at once."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import ray
from ray.exceptions import ActorUnavailableError

from deployments.limits.actor import RayTransport, start_gatekeeper, stop_gatekeeper
from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.key_cache import StoredKeys
from deployments.limits.client.leases import DENIAL_S
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.contract import Denied, Granted
from deployments.limits.messages import Ask, SyncRequest, TransportDown
from deployments.limits.regions.messages import LoanRequest, parse_reply, render
from deployments.patience import USUAL, Patience
from deployments.state.config import ResolvedState, StateConfig, resolve_state
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from deployments.state.regions import ResolvedRegion
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.rollups import WIDTHS
from deployments.state.usage.store import UsageStore
from tests.patience import PATIENT
from tests.ports import free_port
from tests.serve.actors.gatekeepers import answering_gatekeeper
from tests.waiting import eventually

pytestmark = pytest.mark.serve

NAME = "gatekeeper-under-test"


@dataclass
class Gatekeeping:
    state: ResolvedState
    keys: KeyStore
    usage: UsageStore
    actor: ray.actor.ActorHandle
    database: Database
    transports: list[RayTransport] = field(default_factory=list)

    def client(self, patience: Patience = PATIENT) -> GatekeeperClient:
        """Return a client as an ingress replica has it."""
        transport, stored_keys = RayTransport(NAME, patience), StoredKeys(self.keys, patience)
        self.transports.append(transport)
        return GatekeeperClient(transport, self.state.pepper, stored_keys=stored_keys, patience=patience)

    async def pid(self) -> int:
        return await pid_of(self.actor)


async def pid_of(actor: ray.actor.ActorHandle) -> int:
    """Return the id of an actor's process, once it has one: it may restart just now."""
    async with asyncio.timeout(60):
        while True:
            try:
                pid: int = await actor.__ray_call__.remote(lambda _: os.getpid())
            except ActorUnavailableError:
                await asyncio.sleep(0.1)
            else:
                return pid


@pytest.fixture
async def gatekeeping(ray_cluster: None, tmp_path: Path) -> AsyncIterator[Gatekeeping]:
    state = resolve_state(StateConfig(state_dir=tmp_path), {})
    database = await connect(state.database_url)
    actor = await answering_gatekeeper(state, NAME)
    gatekeeping = Gatekeeping(state, KeyStore(database, state.pepper), UsageStore(database), actor, database)
    yield gatekeeping
    for transport in gatekeeping.transports:
        transport.close()
    await asyncio.to_thread(stop_gatekeeper, NAME)
    await database.close()


async def identified(client: GatekeeperClient, secret: str) -> Principal:
    principal = await client.identify(secret)
    assert principal is not None
    return principal


async def test_a_killed_gatekeeper_comes_back_with_its_account(gatekeeping: Gatekeeping) -> None:
    _, secret = await gatekeeping.keys.create(NewKey(tier="free"))
    client = gatekeeping.client(USUAL.times(100))  # Ray may take many seconds to start it again.
    free = await identified(client, secret)
    assert free.requests_per_minute == 10
    for _ in range(6):
        assert isinstance(await client.admit(free), Granted)

    async def has_back_what_was_leased() -> bool:
        return await used_requests(free.key_id) == 6

    await eventually(has_back_what_was_leased)
    before = await gatekeeping.pid()
    os.kill(before, signal.SIGKILL)
    assert [isinstance(await client.admit(free), Granted) for _ in range(5)] == [True] * 4 + [False]
    assert not client.counts["times_away"]
    assert await gatekeeping.pid() != before
    await client.close()


async def test_requests_go_on_while_the_gatekeeper_hangs_and_is_killed_and_it_hears_of_them(
    gatekeeping: Gatekeeping,
) -> None:
    _, secret = await gatekeeping.keys.create(NewKey(requests_per_minute=100_000, tokens_per_minute=10**9))
    client = gatekeeping.client(USUAL)
    holder = await identified(client, secret)
    _, unseen = await gatekeeping.keys.create(NewKey())
    pid = await gatekeeping.pid()
    admitted = 0
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(60):
            while not client.counts["decided_alone"]:
                assert isinstance(await client.admit(holder), Granted)
                admitted += 1
                await asyncio.sleep(0.005)
        assert client.counts["times_away"] == 1
        assert await client.identify(unseen) is not None  # The database knows it.
        num_syncs = client.counts["syncs"]
    finally:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while client.counts["syncs"] == num_syncs:
            assert await client.identify(secret) == holder
            assert isinstance(await client.admit(holder), Granted)
            admitted += 1
            await asyncio.sleep(0.005)

    async def has_heard_of_all() -> bool:
        return await used_requests(holder.key_id) >= admitted

    await eventually(has_heard_of_all, 60)
    await client.close()


async def test_many_clients_at_once_get_the_limit_and_no_more(gatekeeping: Gatekeeping) -> None:
    limit = 200
    _, secret = await gatekeeping.keys.create(NewKey(requests_per_minute=limit, tokens_per_minute=10**9))
    clients = [gatekeeping.client() for _ in range(4)]
    principals = [await identified(client, secret) for client in clients]
    admitted = 0

    async def insist(client: GatekeeperClient, principal: Principal) -> None:
        nonlocal admitted
        while admitted < limit:
            decision = await client.admit(principal)
            admitted += isinstance(decision, Granted)
            await asyncio.sleep(0.001)

    async with asyncio.timeout(30):  # After a minute there would be room again.
        await asyncio.gather(*(insist(*one) for one in zip(clients, principals, strict=True) for _ in range(4)))
        await asyncio.sleep(DENIAL_S)
        refused = [await client.admit(one) for client, one in zip(clients, principals, strict=True)]
    assert admitted == limit
    assert {type(decision) for decision in refused} == {Denied}
    assert not any(client.counts["times_away"] for client in clients)
    await asyncio.gather(*(client.close() for client in clients))


async def used_requests(key_id: str) -> int:
    """Return the requests that the gatekeeper has counted for a key in the last minute."""
    transport = RayTransport(NAME, PATIENT)
    try:
        reply = await transport.sync(SyncRequest("observer", 1, 0, 0.4, [Ask(key_id, 0, 0, 0, 0)], [], []))
    finally:
        transport.close()
    return reply.usage[key_id].used_requests


async def test_another_configuration_starts_the_gatekeeper_anew_with_its_account(gatekeeping: Gatekeeping) -> None:
    _, secret = await gatekeeping.keys.create(NewKey())
    _, unused = await gatekeeping.keys.create(NewKey())
    client = gatekeeping.client()
    principal = await identified(client, secret)
    for _ in range(3):
        assert isinstance(await client.admit(principal), Granted)
    await client.close()
    assert await used_requests(principal.key_id) == 3
    tiers = Tiers.model_validate({"free": {"requests_per_minute": 3, "tokens_per_minute": 3}})
    changed = replace(gatekeeping.state, config=gatekeeping.state.config.model_copy(update={"tiers": tiers}))
    same = await asyncio.to_thread(start_gatekeeper, gatekeeping.state, NAME)
    assert await pid_of(same) == await gatekeeping.pid()
    await asyncio.to_thread(start_gatekeeper, changed, NAME)
    client = gatekeeping.client()
    principal = await identified(client, secret)
    assert principal.requests_per_minute == 3
    assert await used_requests(principal.key_id) == 3
    denied = await client.admit(principal)
    assert isinstance(denied, Denied)
    assert denied.limit == 3
    assert isinstance(await client.admit(await identified(client, unused)), Granted)
    await client.close()


async def test_request_records_are_counted_once_though_the_gatekeeper_is_killed(gatekeeping: Gatekeeping) -> None:
    log = ShippedRequestLog(RayTransport(NAME))
    for number in range(200):
        log.record(
            RequestRecord(
                *(f"req_{number}", time.time(), "key_1", "acme", "free", "POST", "/v1/chat/completions", "m", 200),
                *(None, False, 3, 2, 0, None, 0.1),
            )
        )
        if number == 100:
            await eventually(lambda: log._next_to_send == 101)  # It has those, and not all are in the database.
            os.kill(await gatekeeping.pid(), signal.SIGKILL)

    async def are_all_counted() -> bool:
        return await gatekeeping.usage.count() == 200

    await eventually(are_all_counted, 60)
    await log.close()
    (row,) = await gatekeeping.usage.by_day()
    assert (row.num_requests, row.prompt_tokens) == (200, 600)
    reader = UsageReader(gatekeeping.database)
    for width in WIDTHS:
        (total,) = await reader.totals(width, time.time() - 600, time.time())
        assert (total.num_requests, total.prompt_tokens) == (200, 600)
    (latency,) = await reader.latency("1d", time.time() - 600, time.time())
    assert latency.num_requests == 200


async def test_other_regions_are_answered_through_the_actor(ray_cluster: None, tmp_path: Path) -> None:
    name = "gatekeeper-of-a-region"
    here = ResolvedRegion("us", {"asia": f"http://127.0.0.1:{free_port()}"})
    state = replace(resolve_state(StateConfig(state_dir=tmp_path), {}), region=here)
    await answering_gatekeeper(state, name)
    try:
        transport = RayTransport(name)
        request = LoanRequest(["asia", "us"], "asia", "asia:1", "", 1, 2.0, [], [], {})
        first = parse_reply(await transport.lend(render(request)))
        assert first.is_stale
        assert not parse_reply(await transport.lend(render(request._replace(lender=first.lender)))).is_stale
        shares = await transport.shares()
        assert shares is not None
        assert shares["others"]["asia"]["away_s"] > 0
        with pytest.raises(TransportDown):
            await transport.lend(b"nonsense")
    finally:
        await asyncio.to_thread(stop_gatekeeper, name)
