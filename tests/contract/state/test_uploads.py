"""Uploads over real databases: parts become one file, once, or nothing of them stays."""

import asyncio
import hashlib
import os
from functools import partial

import pytest
from sqlalchemy import select

from deployments.state.config import FilesConfig
from deployments.state.database.connection import Database
from deployments.state.database.queries import Page
from deployments.state.database.tables.content import upload_parts, uploads
from deployments.state.objects.store import StoreFull, StoreUnavailable
from deployments.state.uploads import rows
from deployments.state.uploads.rows import (
    LIFETIME_S,
    NewUpload,
    NoRoom,
    StoredPart,
    StoredUpload,
    TooManyParts,
    TooManyUploads,
    UnknownPart,
    UploadEnded,
    UploadNotFound,
    WrongChecksum,
    WrongSize,
)
from deployments.state.uploads.store import UploadStore
from tests.contract.state.shelf import Shelf, num_bytes_of

RULES = FilesConfig(max_account_bytes=10_000_000)


class Desk:
    """An upload store over a shelf."""

    def __init__(self, database: Database) -> None:
        self.shelf = Shelf(database)
        self.store = UploadStore(database, self.shelf.store)

    async def begin(self, num_bytes: int, account: str = "acct", **more) -> StoredUpload:
        values = {"purpose": "user_data", "filename": "naïve.bin", "mime_type": "text/plain", "file_lifetime_s": 1e6}
        new = NewUpload(account=account, key_id="key-1", num_bytes=num_bytes, **(values | more))
        return await self.store.create(new, RULES)

    async def add(self, upload: StoredUpload, content: bytes, rules: FilesConfig = RULES) -> StoredPart:
        async with self.store.create_part(upload) as writer:
            await writer.write(content)
        return await self.store.record_part(upload, writer, rules)

    async def complete(self, upload: StoredUpload, *parts: StoredPart, md5: str | None = None):
        return await self.store.complete(upload.account, upload.upload_id, [part.part_id for part in parts], md5)

    async def counts(self) -> tuple[int, int, int]:
        """Return how many uploads, parts and objects there are."""
        async with self.shelf.database.read() as connection:
            stored = [(await connection.execute(select(table))).all() for table in (uploads, upload_parts)]
        return len(stored[0]), len(stored[1]), len(self.shelf.objects.objects)


@pytest.fixture
def desk(database: Database) -> Desk:
    return Desk(database)


async def test_parts_become_a_file_in_the_order_that_is_asked_for(desk):
    first, second, unused = os.urandom(1_300_000), os.urandom(70_001), b"sent twice"
    content = first + second
    upload = await desk.begin(len(content))
    assert (upload.status, upload.filename, upload.file_id) == ("pending", "naïve.bin", None)
    assert upload.expires_at == upload.created_at + 3600
    late, _, early = await asyncio.gather(*(desk.add(upload, one) for one in (second, unused, first)))
    done, file = await desk.complete(upload, early, late, md5=hashlib.md5(content).hexdigest().upper())
    assert (done.status, done.file_id) == ("completed", file.file_id)
    assert (file.num_bytes, file.filename, file.purpose) == (len(content), "naïve.bin", "user_data")
    assert file.expires_at == file.created_at + 1e6
    assert await desk.shelf.content(file) == content
    assert await desk.shelf.store.find("acct", file.file_id) == file
    assert await desk.store.find("acct", upload.upload_id) == done
    assert await desk.counts() == (1, 0, 1)


async def test_nothing_is_stored_in_the_clear(desk):
    upload = await desk.begin(13_000, filename="Kanarienvogel", mime_type="Kanarienvogel")
    await desk.add(upload, b"Kanarienvogel" * 1000)
    assert all(b"Kanarienvogel" not in content for content in desk.shelf.objects.objects.values())
    async with desk.shelf.database.read() as connection:
        for table in (uploads, upload_parts):
            assert "Kanarienvogel" not in repr((await connection.execute(select(table))).mappings().all())


async def test_completing_again_returns_the_same_file_and_another_list_is_refused(desk):
    upload = await desk.begin(3)
    part, other = await desk.add(upload, b"abc"), await desk.add(upload, b"xyz")
    done = await desk.complete(upload, part)
    assert await desk.complete(upload, part) == done
    with pytest.raises(UploadEnded, match="completed"):
        await desk.complete(upload, other)
    await desk.shelf.store.delete("acct", done[1].file_id)
    with pytest.raises(UploadEnded, match="completed"):
        await desk.complete(upload, part)


async def test_of_two_that_complete_side_by_side_one_makes_the_file(desk, monkeypatch):
    upload = await desk.begin(6)
    part, other = await desk.add(upload, b"abcdef"), await desk.add(upload, b"uvwxyz")
    both, record = asyncio.Barrier(3), desk.shelf.store.create
    monkeypatch.setattr(desk.shelf.store, "create", lambda new: _after(both, record(new)))
    same, again, different = await asyncio.gather(
        desk.complete(upload, part), desk.complete(upload, part), desk.complete(upload, other), return_exceptions=True
    )
    ended = [one for one in (same, again, different) if isinstance(one, UploadEnded)]
    files, _ = await desk.shelf.store.list_files("acct", Page())
    assert len(files) == 1
    assert len(ended) == (1 if files[0] in (same if isinstance(same, tuple) else ()) else 2)
    assert await desk.counts() == (1, 0, 1)


class _after:
    """Opens a context once all have come to the barrier."""

    def __init__(self, barrier: asyncio.Barrier, inner) -> None:
        self.barrier, self.inner = barrier, inner

    async def __aenter__(self):
        await self.barrier.wait()
        return await self.inner.__aenter__()

    async def __aexit__(self, *error):
        return await self.inner.__aexit__(*error)


async def test_what_is_not_the_file_that_was_announced_is_refused_and_may_be_put_right(desk):
    upload = await desk.begin(6)
    part, more = await desk.add(upload, b"abc"), await desk.add(upload, b"def")
    foreign = await desk.add(await desk.begin(6), b"abcdef")
    with pytest.raises(WrongSize) as wrong:
        await desk.complete(upload, part)
    assert wrong.value.num_bytes == 3
    for stranger in (foreign.part_id, "part_none", "nul\0", "\udcff"):
        with pytest.raises(UnknownPart):
            await desk.store.complete("acct", upload.upload_id, [part.part_id, stranger])
    with pytest.raises(WrongChecksum):
        await desk.complete(upload, part, more, md5="0" * 32)
    assert await desk.counts() == (2, 3, 3)
    _, file = await desk.complete(upload, part, more, md5=hashlib.md5(b"abcdef").hexdigest())
    assert await desk.shelf.content(file) == b"abcdef"


async def test_an_upload_of_another_account_does_not_exist(desk):
    upload = await desk.begin(3)
    part = await desk.add(upload, b"abc")
    for attempt in (
        desk.store.find("other", upload.upload_id),
        desk.store.cancel("other", upload.upload_id),
        desk.store.complete("other", upload.upload_id, [part.part_id]),
        desk.store.find("acct", "upload_none"),
        desk.store.find("acct", "nul\0"),
    ):
        with pytest.raises(UploadNotFound):
            await attempt
    assert (await desk.complete(upload, part))[0].status == "completed"


async def test_a_cancelled_upload_keeps_nothing_and_takes_nothing(desk):
    upload = await desk.begin(6)
    part = await desk.add(upload, b"abc")
    async with desk.store.create_part(upload) as late:  # It is on its way when the upload is cancelled.
        await late.write(b"def")
        cancelled = await desk.store.cancel("acct", upload.upload_id)
    assert cancelled.status == "cancelled"
    with pytest.raises(UploadEnded, match="cancelled"):
        await desk.store.record_part(upload, late, RULES)
    assert await desk.counts() == (1, 0, 0)
    assert await desk.store.cancel("acct", upload.upload_id) == cancelled
    with pytest.raises(UploadEnded, match="cancelled"):
        await desk.complete(upload, part)
    with pytest.raises(UploadEnded, match="cancelled"):
        await desk.add(cancelled, b"def")
    done = await desk.begin(3)
    await desk.complete(done, await desk.add(done, b"abc"))
    with pytest.raises(UploadEnded, match="completed"):
        await desk.store.cancel("acct", done.upload_id)


async def test_an_upload_that_is_cancelled_while_its_file_is_made_has_no_file(desk, monkeypatch):
    upload = await desk.begin(3)
    part = await desk.add(upload, b"abc")
    read = desk.shelf.objects.read

    async def cancel_and_read(*where):
        if (await desk.store.find("acct", upload.upload_id)).status == "pending":
            await desk.store.cancel("acct", upload.upload_id)
        return await read(*where)

    monkeypatch.setattr(desk.shelf.objects, "read", cancel_and_read)
    with pytest.raises(UploadEnded, match="cancelled"):
        await desk.complete(upload, part)
    assert await desk.counts() == (1, 0, 0)
    assert await desk.shelf.store.list_files("acct", Page()) == ([], False)


async def test_an_upload_expires_after_an_hour_and_is_then_swept(desk):
    upload, kept = await desk.begin(3), await desk.begin(3)
    part = await desk.add(upload, b"abc")
    desk.shelf.pass_time(LIFETIME_S - 1)
    assert await desk.store.sweep() == 0
    done, _ = await desk.complete(kept, await desk.add(kept, b"xyz"))
    desk.shelf.pass_time(1)
    expired = await desk.store.find("acct", upload.upload_id)
    assert expired.status == "expired"
    for attempt in (desk.complete(upload, part), desk.add(expired, b"x"), desk.store.cancel("acct", upload.upload_id)):
        with pytest.raises(UploadEnded, match="expired"):
            await attempt
    assert await desk.store.sweep() == 1
    assert await desk.counts() == (1, 0, 1)
    with pytest.raises(UploadNotFound):
        await desk.store.find("acct", upload.upload_id)
    assert (await desk.store.find("acct", kept.upload_id)) == done  # For a client that completes it again.
    desk.shelf.pass_time(LIFETIME_S)
    assert await desk.store.sweep() == 1


async def test_an_upload_that_expires_while_its_file_is_made_is_not_swept_meanwhile(desk, monkeypatch):
    upload = await desk.begin(3)
    part = await desk.add(upload, b"abc")
    desk.shelf.pass_time(LIFETIME_S - 1)
    read = desk.shelf.objects.read

    async def read_slowly(*where):
        desk.shelf.pass_time(60)
        assert await desk.store.sweep() == 0
        return await read(*where)

    monkeypatch.setattr(desk.shelf.objects, "read", read_slowly)
    _, file = await desk.complete(upload, part)
    assert await desk.shelf.content(file) == b"abc"


async def test_a_clock_that_jumps_ahead_destroys_nothing(desk):
    upload = await desk.begin(3)
    part = await desk.add(upload, b"abc")
    await desk.shelf.objects.put("uploads/orphan", b"x")
    desk.shelf.clock.advance(1e9)
    assert (await desk.store.sweep(), await desk.store.sweep_orphans(3600)) == (0, 0)
    desk.shelf.clock.advance(-1e9)
    assert (await desk.complete(upload, part))[0].status == "completed"


async def test_what_has_no_row_is_swept_once_it_is_old(desk):
    upload = await desk.begin(3)
    await desk.add(upload, b"abc")
    await desk.shelf.objects.put("uploads/orphan", b"x")
    assert await desk.store.sweep_orphans(3000) == 0
    desk.shelf.pass_time(3001)
    assert await desk.store.sweep_orphans(3000) == 1
    assert await desk.counts() == (1, 1, 1)


async def test_a_pending_upload_holds_room_until_it_ends(desk):
    count = partial(num_bytes_of, desk.shelf.store)
    await desk.shelf.add(b"12345")
    upload = await desk.begin(1000)
    assert await count("acct") == 1005
    part = await desk.add(upload, b"x" * 1000)
    assert await count("acct") == 1005
    await desk.add(upload, b"x" * 500)  # More than was announced.
    assert await count("acct") == 1505
    cancelled = await desk.begin(7000)
    await desk.store.cancel("acct", cancelled.upload_id)
    await desk.complete(upload, part)
    assert await count("acct") == 1005
    await desk.begin(100)
    desk.shelf.pass_time(LIFETIME_S)
    assert await count("acct") == 1005


async def test_no_more_is_held_than_the_account_has_room_for(desk):
    upload = await desk.begin(9_999_000)
    with pytest.raises(NoRoom):
        await desk.begin(1001)
    await desk.begin(1000, account="other")
    small = await desk.begin(1000)
    await desk.add(small, b"x" * 1000)
    before = await desk.counts()
    with pytest.raises(NoRoom):
        await desk.add(small, b"x")
    with pytest.raises(TooManyParts):
        await desk.add(upload, b"x" * 2000, FilesConfig(max_upload_bytes=1024))
    assert await desk.counts() == before


async def test_the_number_of_parts_and_of_pending_uploads_is_bounded(desk, monkeypatch):
    monkeypatch.setattr("deployments.state.uploads.store.MAX_PARTS", 2)
    monkeypatch.setattr("deployments.state.uploads.store.MAX_PENDING", 2)
    upload = await desk.begin(1)
    await desk.add(upload, b"")
    part = await desk.add(upload, b"a")
    with pytest.raises(TooManyParts):
        await desk.add(upload, b"")
    await desk.begin(1)
    with pytest.raises(TooManyUploads):
        await desk.begin(1)
    await desk.complete(upload, part)
    await desk.begin(1)
    assert rows.MAX_PARTS * len("part_" + "0" * 32) < 64 * 1024 * 1024


async def test_a_store_that_is_away_or_full_costs_nothing_but_another_try(desk):
    upload = await desk.begin(2000)
    part = await desk.add(upload, b"x" * 2000)
    desk.shelf.objects.room_bytes = 3000
    for attempt in (desk.add(upload, b"x" * 2000), desk.complete(upload, part)):
        with pytest.raises(StoreFull):
            await attempt
    desk.shelf.objects.room_bytes = None
    desk.shelf.objects.is_away = True
    with pytest.raises(StoreUnavailable):
        await desk.complete(upload, part)
    desk.shelf.objects.is_away = False
    assert (await desk.complete(upload, part))[0].status == "completed"
