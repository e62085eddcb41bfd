"""Keys of the database while the gatekeeper does not answer: who is let in, who is not, and how soon."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.key_cache import StoredKeys
from deployments.limits.contract import GatekeeperUnavailable
from deployments.limits.messages import Identified, SyncReply, SyncRequest, TransportDown
from deployments.patience import USUAL
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from tests.contract.state.processes import resolved
from tests.patience import PATIENT


class NoGatekeeper:
    """The way to a gatekeeper that never answers; `num_calls` counts what was asked of it."""

    num_calls = 0

    async def identify(self, digest: bytes) -> Identified:
        self.num_calls += 1
        raise TransportDown("away")

    async def sync(self, request: SyncRequest) -> SyncReply:
        raise TransportDown("away")

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        raise TransportDown("away")

    async def refresh_keys(self) -> None:
        raise TransportDown("away")


class World:
    def __init__(self, database: Database, pepper: bytes) -> None:
        self.database = database
        self.keys = KeyStore(database, pepper)
        self.transport = NoGatekeeper()
        self.pepper = pepper
        self.patience = replace(USUAL, stored_key_s=PATIENT.stored_key_s)
        self.client = self.new_client()

    def new_client(self) -> GatekeeperClient:
        stored_keys = StoredKeys(self.keys, self.patience)
        return GatekeeperClient(
            self.transport, self.pepper, stored_keys=stored_keys, patience=self.patience, background=False
        )

    async def let_in(self, secret: str) -> str | None:
        """Return the id of the key that a new client lets in; None where it refuses the secret."""
        client = self.new_client()
        client._sync_loop.away_since = time.monotonic()
        principal = await client.identify(secret)
        return None if principal is None else principal.key_id


@pytest.fixture
async def world(database_url: str, tmp_path: Path) -> AsyncIterator[World]:
    state = resolved(database_url, tmp_path / "state")
    database = await connect(database_url)
    yield World(database, state.pepper)
    await database.close()


async def test_a_key_that_no_replica_knows_is_accepted_from_the_database(world: World) -> None:
    key, secret = await world.keys.create(NewKey())
    assert await world.let_in(secret) == key.key_id
    assert await world.client.can_check_keys()


async def test_the_database_refuses_what_the_gatekeeper_would(world: World) -> None:
    key, secret = await world.keys.create(NewKey())
    await world.keys.revoke(key.key_id)
    rotated, old = await world.keys.create(NewKey())
    _, new = await world.keys.rotate(rotated.key_id)
    _, expired = await world.keys.create(NewKey(expires_at=time.time() + 0.05))
    await asyncio.sleep(0.06)
    assert [await world.let_in(one) for one in (secret, old, new, expired, "sk-manta-made-up")] == [
        None,
        None,
        rotated.key_id,
        None,
        None,
    ]


async def test_an_old_secret_is_accepted_until_the_end_of_its_overlap(world: World) -> None:
    key, old = await world.keys.create(NewKey())
    await world.keys.rotate(key.key_id, overlap_s=60)
    assert await world.let_in(old) == key.key_id


async def test_a_key_that_was_read_is_not_read_again_and_nobody_waits_for_the_gatekeeper(world: World) -> None:
    key, secret = await world.keys.create(NewKey())
    find, num_reads = world.keys.find, 0

    async def counted(digest: bytes) -> object:
        nonlocal num_reads
        num_reads += 1
        return await find(digest)

    world.keys.find = counted  # type: ignore[assignment,method-assign]
    world.client._sync_loop.away_since = time.monotonic()
    for _ in range(20):
        principal = await world.client.identify(secret)
        assert principal is not None
        assert principal.key_id == key.key_id
    assert (num_reads, world.transport.num_calls) == (1, 0)


async def test_without_the_database_a_key_that_nobody_knows_is_unavailable(world: World) -> None:
    _, secret = await world.keys.create(NewKey())
    world.patience = replace(world.patience, look_up_s=0.3)
    await world.database.close()
    world.keys.find = _fail  # type: ignore[method-assign]  # A closed SQLite engine would open its file again.
    with pytest.raises(GatekeeperUnavailable):
        await world.let_in(secret)
    assert not await world.client.can_check_keys()


async def _fail(digest: bytes) -> tuple[int, None]:
    raise ConnectionError
