"""The gatekeeper as a real actor: killed, restarted, reconfigured, and asked by several clients at once."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import ray
from ray.exceptions import ActorUnavailableError

from deployments.detached import NAMESPACE
from deployments.limits.actor import RayTransport, start_gatekeeper, stop_gatekeeper
from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.client.stored_keys import StoredKeys
from deployments.limits.contract import Denied, Granted
from deployments.limits.messages import Ask, SyncRequest, TransportDown
from deployments.limits.regions.messages import LoanRequest, parse_reply, render
from deployments.patience import USUAL
from deployments.state.config import ResolvedState, StateConfig, resolve_state
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from deployments.state.regions.config import ResolvedRegion
from deployments.state.usage.periods import WIDTHS
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageStore
from tests.ports import free_port
from tests.serve.gatekeepers import answering_gatekeeper

pytestmark = pytest.mark.serve

NAME = "gatekeeper-under-test"


@dataclass
class Gatekeeping:
    state: ResolvedState
    keys: KeyStore
    usage: UsageStore
    actor: ray.actor.ActorHandle
    database: Database

    def client(self) -> GatekeeperClient:
        """Return a client as an ingress replica has it."""
        return GatekeeperClient(RayTransport(NAME), self.state.pepper, stored_keys=StoredKeys(self.keys))

    async def identified(self, secret: str) -> tuple[GatekeeperClient, Principal]:
        """Return a client that the gatekeeper answered, and the holder of a secret.

        A busy machine may take longer to answer the first sync than requests wait: such a client decides alone, by the
        database's keys and without the account.
        """
        async with asyncio.timeout(60):
            while True:
                client = self.client()
                principal = await client.identify(secret)
                assert principal is not None
                if not client.counts["times_away"]:
                    return client, principal
                await client.close()

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
    yield Gatekeeping(state, KeyStore(database, state.pepper), UsageStore(database), actor, database)
    await asyncio.to_thread(stop_gatekeeper, NAME)
    await database.close()


async def test_a_killed_gatekeeper_comes_back_without_an_error_and_with_its_account(gatekeeping: Gatekeeping) -> None:
    _, large = await gatekeeping.keys.create(
        NewKey(tier="enterprise", requests_per_minute=100_000, tokens_per_minute=10**9)
    )
    _, small = await gatekeeping.keys.create(NewKey(tier="free"))
    client = gatekeeping.client()
    holder, free = await client.identify(large), await client.identify(small)
    assert holder is not None
    assert free is not None
    for _ in range(6):
        assert isinstance(await client.admit(free), Granted)
    _, unseen = await gatekeeping.keys.create(NewKey())
    await asyncio.sleep(0.5)
    before = await gatekeeping.pid()
    assert isinstance(await client.admit(holder), Granted)
    os.kill(before, signal.SIGKILL)
    last_room = asyncio.create_task(client.admit(free))
    newcomer = asyncio.create_task(_seconds_to_identify(client, unseen))
    slowest_s, deadline = 0.0, time.monotonic() + 6
    while time.monotonic() < deadline:
        begin = time.monotonic()
        assert await client.identify(large) is not None
        assert isinstance(await client.admit(holder), Granted)
        granted = await client.reserve(holder, 100)
        assert isinstance(granted, Granted)
        client.settle(holder, granted=granted, reserved=100, used=50)
        slowest_s = max(slowest_s, time.monotonic() - begin)
        await asyncio.sleep(0.005)
    unseen_s = await newcomer
    print(f"while the gatekeeper restarted: slowest request {slowest_s:.2f} s, key not seen before {unseen_s:.2f} s")
    assert await gatekeeping.pid() != before
    assert max(slowest_s, unseen_s) < USUAL.away_after_s + 1.5
    assert isinstance(await last_room, Granted)
    assert [isinstance(await client.admit(free), Granted) for _ in range(4)] == [True] * 3 + [False]
    await client.close()


async def _seconds_to_identify(client: GatekeeperClient, secret: str) -> float:
    began = time.monotonic()
    assert await client.identify(secret) is not None
    return time.monotonic() - began


async def test_many_clients_at_once_get_the_limit_and_no_more(gatekeeping: Gatekeeping) -> None:
    async def insist(client: GatekeeperClient, secret: str) -> int:
        admitted, deadline = 0, time.monotonic() + 5
        while time.monotonic() < deadline:
            principal = await client.identify(secret)
            assert principal is not None
            admitted += isinstance(await client.admit(principal), Granted)
            await asyncio.sleep(0.001)
        return admitted

    for _ in range(3):
        _, secret = await gatekeeping.keys.create(
            NewKey(tier="enterprise", requests_per_minute=600, tokens_per_minute=10**9)
        )
        clients = [(await gatekeeping.identified(secret))[0] for _ in range(4)]
        admitted = sum(await asyncio.gather(*(insist(client, secret) for client in clients for _ in range(4))))
        was_away = any(client.counts["times_away"] for client in clients)
        num_syncs = sum(client.counts["syncs"] for client in clients)
        await asyncio.gather(*(client.close() for client in clients))
        if not was_away:  # A client that waits too long for a busy machine decides alone.
            break
    assert not was_away, "the gatekeeper was away in every try"
    assert 590 <= admitted <= 600
    assert num_syncs < 600


async def test_a_revoked_key_is_refused_by_every_client_within_a_second(gatekeeping: Gatekeeping) -> None:
    clients = [gatekeeping.client() for _ in range(3)]

    async def seconds_until_refused() -> float:
        key, secret = await gatekeeping.keys.create(NewKey())
        for client in clients:
            assert await client.identify(secret) is not None
        await gatekeeping.keys.revoke(key.key_id)
        begin = time.monotonic()
        async with asyncio.timeout(30):
            for client in clients:
                while await client.identify(secret) is not None:  # noqa: ASYNC110 - what changes is in another process.
                    await asyncio.sleep(0.01)
        return time.monotonic() - begin

    # One of three: the machine may be busy with something else.
    assert min([await seconds_until_refused() for _ in range(3)]) < 1.0
    await asyncio.gather(*(client.close() for client in clients))


async def used_requests(key_id: str) -> int:
    """Return the requests that the gatekeeper has counted for a key in the last minute; ask until it answers."""
    transport = RayTransport(NAME)
    message = SyncRequest("observer", 1, 0, 0.4, [Ask(key_id, 0, 0, 0, 0)], [], [])
    async with asyncio.timeout(30):
        while True:
            with suppress(TransportDown):
                standings = (await transport.sync(message)).standings
                transport.close()
                return standings[key_id].used_requests
            await asyncio.sleep(0.05)


async def test_another_configuration_starts_the_gatekeeper_anew_with_its_account(gatekeeping: Gatekeeping) -> None:
    _, secret = await gatekeeping.keys.create(NewKey())
    _, unused = await gatekeeping.keys.create(NewKey())
    client, principal = await gatekeeping.identified(secret)
    for _ in range(3):
        assert isinstance(await client.admit(principal), Granted)
    await client.close()
    assert not client.counts["times_away"]
    # A lease whose reply was lost on a busy machine counts, too.
    used = await used_requests(principal.key_id)
    assert used >= 3
    tiers = Tiers.model_validate({"free": {"requests_per_minute": 3, "tokens_per_minute": 3}})
    changed = replace(gatekeeping.state, config=gatekeeping.state.config.model_copy(update={"tiers": tiers}))
    same = await asyncio.to_thread(start_gatekeeper, gatekeeping.state, NAME)
    assert await pid_of(same) == await gatekeeping.pid()
    await asyncio.to_thread(start_gatekeeper, changed, NAME)
    client, principal = await gatekeeping.identified(secret)
    assert principal.requests_per_minute == 3
    assert await used_requests(principal.key_id) == used
    denied = await client.admit(principal)
    assert isinstance(denied, Denied)
    assert denied.limit == 3
    other = await client.identify(unused)
    assert other is not None
    assert isinstance(await client.admit(other), Granted)
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
            await asyncio.sleep(0.7)
            os.kill(await gatekeeping.pid(), signal.SIGKILL)
        await asyncio.sleep(0.002)
    deadline = time.monotonic() + 60
    while await gatekeeping.usage.count() < 200 and time.monotonic() < deadline:  # noqa: ASYNC110 - so it is here.
        await asyncio.sleep(0.1)
    await log.close()
    (row,) = await gatekeeping.usage.by_day()
    assert (row.num_requests, row.prompt_tokens) == (200, 600)
    reader = UsageReader(gatekeeping.database)
    for width in WIDTHS:
        (total,) = await reader.totals(width, time.time() - 600, time.time())
        assert (total.num_requests, total.prompt_tokens) == (200, 600)
    (latency,) = await reader.latency("1d", time.time() - 600, time.time())
    assert latency.num_requests == 200


@ray.remote
class GatekeeperBefore:
    """The part of a gatekeeper of the version before that takes records, which had 19 fields at most."""

    def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        if any(len(row) > 19 for row in rows):
            raise TypeError("RequestRecord.__init__() takes from 17 to 20 positional arguments but 27 were given")
        return "epoch", first + len(rows)


async def test_a_gatekeeper_of_the_version_before_takes_records_with_more_fields(ray_cluster: None) -> None:
    name = "gatekeeper-of-the-version-before"
    actor = GatekeeperBefore.options(name=name, namespace=NAMESPACE).remote()  # type: ignore[attr-defined]
    await actor.record.remote("client", 0, [])  # It has started.
    log = ShippedRequestLog(RayTransport(name), background=False)
    usual = ("req_1", time.time(), "key_1", "acme", "free", "POST", "/v1/responses", "m", 200, None, False, 3, 2, 0)
    log.record(RequestRecord(*usual, None, 0.1, web_search_calls=2))
    assert await log.ship()
    assert log.is_empty
    ray.kill(actor)


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
