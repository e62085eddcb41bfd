"""Vector stores over real databases: who has which, who indexes what, and what is left when something ends."""

import asyncio

import pytest
from sqlalchemy import select

from deployments.state.database.connection import Database
from deployments.state.database.queries import Page
from deployments.state.database.tables.content import vector_store_files, vector_stores
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.vector_stores.files import VectorStoreFiles
from deployments.state.vector_stores.rows import (
    NewStore,
    NewStoreFile,
    StoreBatchMissing,
    StoreFileMissing,
    StoreFull,
    StoreHasExpired,
    StoreMissing,
)
from deployments.state.vector_stores.store import KEPT_EXPIRED_S, StoreChange, VectorStores
from deployments.state.vector_stores.work import MAX_CLAIMS, VectorStoreWork
from tests.contract.http.conftest import principal
from tests.contract.state.shelf import Shelf
from tests.twins.gatekeeper import TestClock

CHUNKING = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}
WHO = principal(account="acct", models=("a/*",), operations=frozenset({"file_search"}))
DAY_S = 86_400.0


class Stores(Shelf):
    """Vector stores, and the files that are put into them."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.uptime = TestClock(0.0)
        self.stores = VectorStores(database, self.store.vault, self.clock)
        self.files = VectorStoreFiles(self.stores)
        self.work = VectorStoreWork(self.stores, self.uptime)

    async def create(self, store_id="vs_1", max_stores=10, **values):
        return await self.stores.create(NewStore(store_id, "acct", "model", **values), max_stores)

    async def attach(self, *file_ids, store_id="vs_1", batch_id=None, max_files=100, **values):
        new = [NewStoreFile(file_id, f"{file_id}.md", self.clock() + 3600, CHUNKING, **values) for file_id in file_ids]
        return await self.files.attach(WHO, store_id, new, max_files, batch_id)

    async def statuses(self, store_id="vs_1"):
        found, _ = await self.files.list_files("acct", store_id, Page(100, True))
        return {file.file_id: file.status for file in found}


@pytest.fixture
def stores(database: Database) -> Stores:
    return Stores(database)


@pytest.fixture
async def filled(stores: Stores) -> Stores:
    for _ in range(3):
        await stores.add()
    await stores.create()
    await stores.attach("file-1", "file-2", "file-3")
    return stores


async def test_a_store_is_found_changed_listed_and_deleted(stores: Stores) -> None:
    made = await stores.create(name="one", description="of tests", metadata={"a": "b"}, expires_after_days=2)
    assert await stores.stores.find("acct", "vs_1") == made
    assert made.expires_at == stores.clock() + 2 * DAY_S
    stores.clock.advance(10)
    await stores.create("vs_2")
    changed = await stores.stores.update("acct", "vs_1", StoreChange(name="two", metadata={}))
    assert (changed.name, changed.description, changed.metadata) == ("two", "of tests", {})
    assert changed.expires_at == stores.clock() + 2 * DAY_S
    assert (await stores.stores.update("acct", "vs_1", StoreChange(sets_expiry=True))).expires_at is None
    first, has_more = await stores.stores.list_stores("acct", Page(1))
    second, is_last = await stores.stores.list_stores("acct", Page(1, after=first[0].store_id))
    assert ([first[0].store_id, second[0].store_id], has_more, is_last) == (["vs_2", "vs_1"], True, False)
    await stores.stores.delete("acct", "vs_1")
    for asking in (
        stores.stores.find("acct", "vs_1"),
        stores.stores.delete("acct", "vs_1"),
        stores.stores.find("other", "vs_2"),
        stores.stores.list_stores("other", Page(after="vs_2")),
        stores.files.list_files("other", "vs_2", Page()),
    ):
        with pytest.raises(StoreMissing):
            await asking


async def test_several_stores_are_found_at_once(stores: Stores) -> None:
    for store_id, days in (("vs_1", None), ("vs_2", 1), ("vs_3", None)):
        await stores.create(store_id, expires_after_days=days)
    await stores.stores.delete("acct", "vs_3")
    stores.clock.advance(DAY_S)
    wanted = ["vs_1", "vs_2", "vs_3", "vs_4", "vs_\0", "vs_1"]
    found = await stores.stores.find_all("acct", wanted)
    assert {store_id: store.has_expired for store_id, store in found.items()} == {"vs_1": False, "vs_2": True}
    assert found["vs_1"] == await stores.stores.find("acct", "vs_1")
    assert await stores.stores.find_all("other", wanted) == {}


async def test_an_account_has_so_many_stores_at_most(stores: Stores) -> None:
    await stores.create("vs_1", 1)
    with pytest.raises(StoreFull):
        await stores.create("vs_2", 1)
    await stores.stores.delete("acct", "vs_1")
    await stores.create("vs_2", 1)


async def test_stores_that_are_made_side_by_side_are_no_more_than_an_account_may_have(stores: Stores) -> None:
    made = await asyncio.gather(*(stores.create(f"vs_{number}", 3) for number in range(9)), return_exceptions=True)
    assert sorted(isinstance(one, StoreFull) for one in made) == [False] * 3 + [True] * 6


async def test_names_and_attributes_do_not_lie_in_the_clear(stores: Stores) -> None:
    await stores.add()
    await stores.create(name="Kanarienvogel", description="Kanarienvogel", metadata={"Kanarienvogel": "x"})
    await stores.attach("file-1", attributes={"Kanarienvogel": "y"})
    async with stores.database.read() as connection:
        rows = [
            *(await connection.execute(select(vector_stores))),
            *(await connection.execute(select(vector_store_files))),
        ]
    assert "Kanarienvogel" not in repr(rows)


async def test_files_are_claimed_indexed_and_counted(filled: Stores) -> None:
    claim = await filled.work.claim(10, 2)
    assert claim is not None
    assert [one.file.file_id for one in claim.files] == ["file-1", "file-2"]
    assert claim.files[0].principal == WHO
    assert claim.files[0].file.filename == "file-1.md"
    other = await filled.work.claim(10, 2)
    assert [one.file.file_id for one in other.files] == ["file-3"]
    assert await filled.work.claim(10, 2) is None
    before = (await filled.stores.find("acct", "vs_1")).revision
    await filled.work.complete(claim.run_id, "vs_1", {"file-1": 7})
    await filled.work.fail(claim.run_id, "vs_1", "file-2", "invalid_file", "It is damaged.")
    store = await filled.stores.find("acct", "vs_1")
    assert store.counts._asdict() == {"in_progress": 1, "completed": 1, "cancelled": 0, "failed": 1}
    assert (store.usage_bytes, store.revision > before) == (7, True)
    (found,) = await filled.files.searchable(store)
    assert (found.file_id, found.run_id) == ("file-1", claim.run_id)
    assert found.key.open(claim.files[0].file.key.seal(b"x", b"y"), b"y") == b"x"
    failed = await filled.files.find("acct", "vs_1", "file-2")
    assert failed.error == ("invalid_file", "It is damaged.")


async def test_the_claim_of_one_who_died_ends_and_the_late_one_writes_nothing(filled: Stores) -> None:
    late = await filled.work.claim(10, 5)
    filled.clock.advance(5)
    assert await filled.work.renew(late.run_id, 10) == {"file-1", "file-2", "file-3"}
    filled.clock.advance(9)
    assert await filled.work.claim(10, 5) is None
    filled.clock.advance(2)
    again = await filled.work.claim(10, 5)
    assert len(again.files) == 3
    assert await filled.work.renew(late.run_id, 10) == set()
    await filled.work.complete(late.run_id, "vs_1", {"file-1": 7})
    await filled.work.fail(late.run_id, "vs_1", "file-2", "invalid_file", "x")
    assert set((await filled.statuses()).values()) == {"in_progress"}


async def test_a_claim_that_a_fast_clock_took_ends_too(filled: Stores) -> None:
    filled.clock.advance(1000)
    await filled.work.claim(10, 5)
    filled.clock.advance(-1000)
    assert await filled.work.claim(10, 5) is None
    filled.uptime.advance(11)
    assert len((await filled.work.claim(10, 5)).files) == 3


async def test_what_is_let_go_is_taken_at_once_and_what_kills_its_runners_fails(filled: Stores) -> None:
    claim = await filled.work.claim(10, 5)
    await filled.work.release(claim.run_id)
    for _ in range(MAX_CLAIMS):
        assert await filled.work.claim(10, 5) is not None
        filled.clock.advance(11)
    assert await filled.work.claim(10, 5) is None
    assert set((await filled.statuses()).values()) == {"failed"}


async def test_a_file_that_is_let_go_between_two_parts_goes_on_and_alone(filled: Stores) -> None:
    claim = await filled.work.claim(10, 5)
    before = (await filled.stores.find("acct", "vs_1")).revision
    assert await filled.work.note_part(claim.run_id, "vs_1", "file-2", 3, "us")
    store = await filled.stores.find("acct", "vs_1")
    assert (store.revision > before, await filled.files.unfinished_runs(store)) == (True, [claim.run_id])
    await filled.work.release(claim.run_id)
    first = await filled.work.claim(10, 5)
    assert ([one.file.file_id for one in first.files], first.run_id != claim.run_id) == (["file-1"], True)
    second = await filled.work.claim(10, 5)
    (one,) = second.files
    assert (one.file.file_id, second.run_id) == ("file-2", claim.run_id)
    assert (one.file.num_indexed, one.file.num_counted, one.file.indexed_in) == (3, 3, "us")
    assert await filled.work.live_files("vs_1") >= {(claim.run_id, "file-2")}
    await filled.work.complete(second.run_id, "vs_1", {"file-2": 1})
    assert await filled.files.unfinished_runs(store) == []


async def test_a_file_whose_runner_died_begins_anew_and_is_not_counted_again(filled: Stores) -> None:
    claim = await filled.work.claim(10, 1)
    assert await filled.work.note_part(claim.run_id, "vs_1", "file-1", 3, "us")
    filled.clock.advance(11)
    again = await filled.work.claim(10, 1)
    (one,) = again.files
    assert (again.run_id != claim.run_id, one.file.num_indexed, one.file.num_counted) == (True, 0, 3)
    assert await filled.work.note_part(again.run_id, "vs_1", "file-1", 2, "us")
    found = await filled.files.find("acct", "vs_1", "file-1")
    assert (found.num_indexed, found.num_counted) == (2, 3)
    await filled.work.complete(again.run_id, "vs_1", {"file-1": 1})
    await filled.work.end_tidying(await filled.work.claim_tidying(10), None)
    assert not await filled.work.note_part(claim.run_id, "vs_1", "file-1", 4, "us")  # Was not dead, but slow.
    assert (await filled.work.claim_tidying(10)).is_dirty  # What it has written goes.


async def test_what_a_claim_gives_up_begins_anew(filled: Stores) -> None:
    claim = await filled.work.claim(10, 1)
    await filled.work.note_part(claim.run_id, "vs_1", "file-1", 3, "us")
    await filled.work.restart(claim.run_id)
    assert (claim.run_id, "file-1") not in await filled.work.live_files("vs_1")
    again = await filled.work.claim(10, 1)
    assert (again.files[0].file.num_indexed, again.files[0].file.num_counted) == (0, 3)


async def test_files_of_a_revoked_key_are_cancelled_and_those_of_a_resting_one_wait(filled: Stores) -> None:
    keys = KeyStore(filled.database, b"pepper" * 6, clock=filled.clock)
    for file_id, operations in (("file-1", ["chat"]), ("file-2", None)):
        key, _ = await keys.create(NewKey(account="acct", operations=operations))
        new = [NewStoreFile(file_id, "a.md", filled.clock() + 3600, CHUNKING)]
        await filled.files.attach(principal(account="acct", key_id=key.key_id), "vs_1", new, 100)
        filled.clock.advance(1)
        if file_id == "file-1":
            claim = await filled.work.claim(10, 5, resting=[WHO.key_id])
            await filled.work.note_part(claim.run_id, "vs_1", file_id, 3, "")
            await filled.work.release(claim.run_id)
            await keys.revoke(key.key_id)
    claims = [await filled.work.claim(10, 5, resting=[WHO.key_id]) for _ in range(2)]
    assert [one.file.file_id for claim in claims if claim for one in claim.files] == ["file-2"]
    assert await filled.statuses() == {"file-1": "cancelled", "file-2": "in_progress", "file-3": "in_progress"}
    assert await filled.files.unfinished_runs(await filled.stores.find("acct", "vs_1")) == []
    assert [one.file.file_id for one in (await filled.work.claim(10, 5)).files] == ["file-3"]


async def test_batches_are_counted_and_cancelled(filled: Stores) -> None:
    await filled.add()
    await filled.attach("file-1", "file-4", "file-gone", batch_id="vsfb_1")
    batch = await filled.files.find_batch("acct", "vs_1", "vsfb_1")
    assert (batch.counts.in_progress, batch.is_cancelled) == (2, False)
    claim = await filled.work.claim(10, 10)
    await filled.work.complete(claim.run_id, "vs_1", {"file-4": 1})
    batch = await filled.files.cancel_batch("acct", "vs_1", "vsfb_1")
    assert batch.is_cancelled
    assert batch.counts._asdict() == {"in_progress": 0, "completed": 1, "cancelled": 1, "failed": 0}
    await filled.work.complete(claim.run_id, "vs_1", {"file-1": 1})
    statuses = await filled.statuses()
    assert (statuses["file-1"], statuses["file-2"]) == ("cancelled", "in_progress")
    for asking in (filled.files.find_batch("acct", "vs_1", "vsfb_2"), filled.files.cancel_batch("acct", "vs_1", "x")):
        with pytest.raises(StoreBatchMissing):
            await asking


async def test_a_store_holds_so_many_files_at_most(filled: Stores) -> None:
    await filled.add()
    assert await filled.attach("file-1", max_files=3) == ["file-1"]
    with pytest.raises(StoreFull):
        await filled.attach("file-4", max_files=3)
    assert len(await filled.statuses()) == 3


async def test_a_file_that_is_deleted_or_expires_leaves_every_store(filled: Stores) -> None:
    await filled.create("vs_2")
    await filled.attach("file-1", store_id="vs_2")
    await filled.store.delete("acct", "file-1")
    assert list(await filled.statuses()) == ["file-2", "file-3"]
    assert await filled.statuses("vs_2") == {}
    assert {(await filled.work.claim_tidying(10)).store_id for _ in range(2)} == {"vs_1", "vs_2"}
    await filled.files.detach("acct", "vs_1", "file-2")
    with pytest.raises(StoreFileMissing):
        await filled.files.find("acct", "vs_1", "file-2")
    filled.clock.advance(3601)
    await filled.stores.sweep()
    assert await filled.statuses() == {}


async def test_attributes_change_and_searches_hear_of_it(filled: Stores) -> None:
    before = (await filled.stores.find("acct", "vs_1")).revision
    file = await filled.files.set_attributes("acct", "vs_1", "file-1", {"year": 2024.0, "draft": True})
    assert file.attributes == {"year": 2024.0, "draft": True}
    assert (await filled.stores.find("acct", "vs_1")).revision > before


async def test_a_store_expires_after_its_last_use_and_is_forgotten_later(filled: Stores) -> None:
    await filled.stores.update("acct", "vs_1", StoreChange(sets_expiry=True, expires_after_days=1))
    filled.clock.advance(0.9 * DAY_S)
    await filled.stores.touch(await filled.stores.find("acct", "vs_1"))
    filled.clock.advance(0.9 * DAY_S)
    store = await filled.stores.find("acct", "vs_1")
    assert not store.has_expired
    filled.clock.advance(0.2 * DAY_S)
    assert (await filled.stores.find("acct", "vs_1")).has_expired
    with pytest.raises(StoreHasExpired):
        await filled.attach("file-1")
    assert await filled.stores.sweep() == 1
    assert await filled.statuses() == {}
    tidied = await filled.work.claim_tidying(10)
    assert tidied.is_gone
    await filled.work.end_tidying(tidied, None)
    assert (await filled.stores.find("acct", "vs_1")).has_expired
    filled.clock.advance(KEPT_EXPIRED_S)
    await filled.stores.sweep()
    with pytest.raises(StoreMissing):
        await filled.stores.find("acct", "vs_1")


async def test_an_index_is_tidied_by_one_and_again_when_something_changes(filled: Stores) -> None:
    claim = await filled.work.claim(10, 5)
    assert await filled.work.claim_tidying(10) is None  # Files are on their way into it.
    await filled.work.complete(claim.run_id, "vs_1", {"file-1": 1, "file-2": 1, "file-3": 1})
    assert await filled.work.live_files("vs_1") == {(claim.run_id, f"file-{number}") for number in (1, 2, 3)}
    tidied = await filled.work.claim_tidying(10)
    assert (tidied.store_id, tidied.is_dirty, tidied.is_gone) == ("vs_1", True, False)
    assert await filled.work.claim_tidying(10) is None
    filled.clock.advance(1)
    await filled.files.detach("acct", "vs_1", "file-1")
    await filled.work.end_tidying(tidied, None)  # Says nothing of what came later.
    again = await filled.work.claim_tidying(10)
    await filled.work.end_tidying(again, 60)
    assert await filled.work.claim_tidying(10) is None
    filled.clock.advance(61)
    last = await filled.work.claim_tidying(10)
    assert not last.is_dirty
    await filled.work.end_tidying(last, None)
    filled.clock.advance(1000)
    assert await filled.work.claim_tidying(10) is None


async def test_a_store_that_is_filled_without_end_is_tidied_all_the_same(filled: Stores) -> None:
    await filled.work.claim(1000, 5)
    assert await filled.work.claim_tidying(10) is None
    for _ in range(5):
        filled.clock.advance(15)
        await filled.attach("file-1")
        await filled.work.claim(1000, 5)
    assert (await filled.work.claim_tidying(10)).is_dirty


async def test_of_a_deleted_store_nothing_is_left_once_its_index_is_gone(filled: Stores) -> None:
    await filled.stores.delete("acct", "vs_1")
    async with filled.database.read() as connection:
        row = (await connection.execute(select(vector_stores))).mappings().one()
        assert (row["wrapped_key"], row["sealed_record"]) == (b"", b"")
        assert (await connection.execute(select(vector_store_files))).first() is None
    await filled.work.end_tidying(await filled.work.claim_tidying(10), None)
    async with filled.database.read() as connection:
        assert (await connection.execute(select(vector_stores))).first() is None
