"""Keys that are bound to regions: refused elsewhere, worked on only there, and their content in one bucket."""

import asyncio
import time

import pytest
from starlette.requests import HTTPConnection

from deployments.state.batches.ledger import Fenced
from deployments.state.batches.rows import NewBatch
from deployments.state.batches.store import BatchStore
from deployments.state.batches.work import BatchWork
from deployments.state.database.connection import Database
from deployments.state.encryption.vault import Vault
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import KeyChange, NewKey, StoredKey
from deployments.state.identity.principal import Principal, principal_of, principal_to_row
from deployments.state.objects.copies import Copier, PendingCopies, Side
from deployments.state.objects.pair import PairedStore, write_near_only
from deployments.state.objects.store import ObjectMissing
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.values import StoredTurn
from serve_app.errors.api import WrongRegion
from serve_app.http.auth import authenticate
from tests.twins.objects import MemoryObjects

BOUND = Principal("key_1", "acme", "acme", "free", 10, 1000, regions=("us",))
FREE = Principal("key_2", "other", "other", "free", 10, 1000)


async def test_key_keeps_its_regions_and_may_be_bound_anew(database: Database) -> None:
    store = KeyStore(database, b"p" * 32)
    key, _ = await store.create(NewKey(regions=["us", "eu"]))
    assert key.regions == ("us", "eu")
    _, (stored,) = await store.changes_since(0)
    assert isinstance(stored, StoredKey)
    assert stored.principal is not None
    assert stored.principal.regions == ("us", "eu")
    assert (await store.limit(key.key_id, KeyChange(regions=None))).regions is None


@pytest.mark.parametrize(("region", "may"), [("", True), ("us", True), ("asia", False)])
def test_holder_may_run_where_the_key_is_bound(region: str, may: bool) -> None:
    assert BOUND.may_run_in(region) is may
    assert FREE.may_run_in(region)
    assert principal_of(principal_to_row(BOUND)) == BOUND
    before = principal_to_row(FREE)
    del before["regions"]  # As a version without regions wrote it.
    assert principal_of(before) == FREE


async def test_request_in_another_region_is_refused_with_a_code() -> None:
    class Gatekeeper:
        async def identify(self, secret: str) -> Principal:
            return BOUND

    request = HTTPConnection({"type": "http", "headers": [(b"authorization", b"Bearer sk-manta-x")]})
    assert await authenticate(request, Gatekeeper(), "us") is BOUND
    with pytest.raises(WrongRegion) as caught:
        await authenticate(request, Gatekeeper(), "asia")
    assert (caught.value.status, caught.value.code) == (403, "wrong_region")


async def test_content_stays_in_the_near_store_and_is_not_copied_later(database: Database) -> None:
    near, far = MemoryObjects(), MemoryObjects()
    pending = PendingCopies(database)
    pair = PairedStore(Side("us", near), Side("asia", far), pending)

    async def write() -> None:
        write_near_only()
        await pair.put("files/bound", b"one")
        async with pair.create("files/stream") as writer:
            await writer.write(b"two")

    await asyncio.create_task(write())
    await pair.put("files/free", b"three")  # Another task's writes go to both.
    await Copier(pair.near, pair.far, pending).run()
    for key, content in (("files/bound", b"one"), ("files/stream", b"two")):
        assert await pair.read(key, 0, 9) == content
        with pytest.raises(ObjectMissing):
            await far.read(key, 0, 9)
    assert await far.read("files/free", 0, 9) == b"three"
    assert await pending.backlog() == {}


async def test_background_response_is_taken_over_only_where_its_key_may_run(database: Database) -> None:
    vault = Vault(database, b"m" * 32)
    us, asia = (BackgroundStore(database, vault, region=name) for name in ("us", "asia"))
    for principal in (BOUND, FREE):
        turn = StoredTurn(
            {
                "id": f"resp_{principal.account}",
                "status": "queued",
                "previous_response_id": None,
                "created_at": 1,
                "output": [],
            },
            [],
        )
        job = {"principal": principal_to_row(principal)}
        await us.start(
            principal.account,
            turn,
            job,
            key_id=principal.key_id,
            events=[b"{}"],
            expires_at=time.time() + 100,
            lease_s=6.0,
        )
        await us.release(turn.id, 1)
    claimed = await asia.claim(6.0)
    assert claimed is not None
    assert claimed.account == "other"
    assert await asia.claim(6.0) is None
    claimed = await us.claim(6.0)
    assert claimed is not None
    assert claimed.account == "acme"


async def test_batch_is_claimed_only_where_its_key_may_run_and_fenced_when_that_region_is_gone(
    database: Database,
) -> None:
    store = BatchStore(database, Vault(database, b"m" * 32))
    us, asia = (BatchWork(store, region=name) for name in ("us", "asia"))
    bound = await store.create(NewBatch(BOUND, "file-1", "/v1/chat/completions", "24h", 86_400.0))
    free = await store.create(NewBatch(FREE, "file-2", "/v1/chat/completions", "24h", 86_400.0))
    claimed = await asia.claim(10.0)
    assert claimed is not None
    assert claimed.batch_id == free.batch_id
    assert await asia.claim(10.0) is None
    of_us = await us.claim(10.0)
    assert of_us is not None
    assert of_us.batch_id == bound.batch_id
    await asia.release(free.batch_id, claimed.state.epoch)
    taken = await us.claim(10.0, [of_us])
    assert taken is not None
    assert taken.state.epoch == claimed.state.epoch + 1
    with pytest.raises(Fenced):
        await asia.begin(free, claimed.state.epoch, 1, 1)
