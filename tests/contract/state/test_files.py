"""Files over real databases and object stores: what is written comes back, to its account only, until it is gone."""

import asyncio
import os
from collections.abc import Callable

import pytest
from sqlalchemy import select, update

from deployments.state.database.connection import Database
from deployments.state.database.queries import Page
from deployments.state.database.tables.content import files
from deployments.state.files.store import FileInUse, FileNotFound
from deployments.state.objects.store import StoreFull, StoreUnavailable
from tests.batches import insert_batch
from tests.contract.state.shelf import Shelf, num_bytes_of

MIB = 1024 * 1024


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database)


async def test_a_file_comes_back_whole_and_by_range(shelf: Shelf) -> None:
    content = os.urandom(2 * MIB + 77)
    file = await shelf.add(content, filename="naïve name.jsonl")
    found = await shelf.store.find("acct", file.file_id)
    assert found == file
    assert found.filename == "naïve name.jsonl"
    assert found.num_bytes == len(content)
    assert await shelf.content(found) == content
    for start, stop in [(0, 1), (65_535, 65_537), (MIB - 1, MIB + 1), (len(content) - 1, len(content)), (5, 5)]:
        assert await shelf.content(found, start, stop) == content[start:stop]


async def test_neighbours_that_are_asked_for_at_once_are_read_from_the_object_store_once(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3 * MIB)
    reader = await shelf.store.open(await shelf.add(content))
    spans: list[tuple[int, int]] = []
    read = shelf.objects.read

    async def slow(key: str, start: int, stop: int) -> bytes:
        spans.append((start, stop))
        await asyncio.sleep(0.001)
        return await read(key, start, stop)

    monkeypatch.setattr(shelf.objects, "read", slow)
    starts = range(0, 3 * MIB, 4096)
    pieces = await asyncio.gather(*(reader.read(start, start + 4096) for start in starts))
    assert b"".join(pieces) == content
    windows = [span for span in spans if span[1] - span[0] > 4096]  # The others are the salt.
    assert len(windows) == len(set(windows)) == 3
    shelf.objects.is_away = True
    with pytest.raises(StoreUnavailable):
        await reader.read(0, 10)
    shelf.objects.is_away = False
    assert await reader.read(0, 10) == content[:10]


async def test_an_empty_file_is_a_file(shelf: Shelf) -> None:
    file = await shelf.add(b"")
    assert await shelf.content(file) == b""


async def test_nothing_is_stored_in_the_clear(shelf: Shelf) -> None:
    await shelf.add(b"Kanarienvogel" * 1000, filename="Kanarienvogel.jsonl")
    assert all(b"Kanarienvogel" not in content for content in shelf.objects.objects.values())
    async with shelf.database.read() as connection:
        row = (await connection.execute(select(files))).mappings().one()
    assert "Kanarienvogel" not in repr(dict(row))


async def test_a_file_of_another_account_does_not_exist(shelf: Shelf) -> None:
    file = await shelf.add()
    other = await shelf.add(account="other")
    attempts: list[Callable] = [
        lambda: shelf.store.find("other", file.file_id),
        lambda: shelf.store.delete("other", file.file_id),
        lambda: shelf.store.list_files("other", Page(after=file.file_id)),
        lambda: shelf.store.find("acct", "file-none"),
        lambda: shelf.store.find("acct", "nul\0"),
    ]
    for attempt in attempts:
        with pytest.raises(FileNotFound):
            await attempt()
    assert await shelf.store.list_files("other", Page()) == ([other], False)


async def test_a_list_is_paged_both_ways(shelf: Shelf) -> None:
    ids = []
    for number in range(5):
        if number % 2:
            shelf.clock.advance(1)
        ids.append((await shelf.add()).file_id)
    for is_ascending, expected in ((True, ids), (False, ids[::-1])):
        seen: list[str] = []
        has_more = True
        while has_more:
            page = Page(2, is_ascending, after=seen[-1] if seen else None)
            found, has_more = await shelf.store.list_files("acct", page)
            seen += [file.file_id for file in found]
        assert seen == expected


async def test_a_list_is_narrowed_by_purpose(shelf: Shelf) -> None:
    await shelf.add()
    kept = await shelf.add(purpose="user_data")
    assert await shelf.store.list_files("acct", Page(), "user_data") == ([kept], False)


async def test_deleting_destroys_the_key_and_the_content(shelf: Shelf) -> None:
    file = await shelf.add()
    await shelf.store.delete("acct", file.file_id)
    assert shelf.objects.objects == {}
    async with shelf.database.read() as connection:
        assert (await connection.execute(select(files))).all() == []
    with pytest.raises(FileNotFound):
        await shelf.content(file)


async def test_a_file_that_a_batch_needs_is_neither_deleted_nor_swept(shelf: Shelf) -> None:
    file = await shelf.add(lives_s=10)
    await insert_batch(shelf.database, input_file_id=file.file_id, status="in_progress")
    with pytest.raises(FileInUse, match="batch_"):
        await shelf.store.delete("acct", file.file_id)
    shelf.pass_time(11)
    assert await shelf.store.sweep() == 0
    assert await shelf.store.find("acct", file.file_id, even_expired=True) == file


async def test_another_accounts_batch_that_names_a_file_keeps_it_from_nothing(shelf: Shelf) -> None:
    file, swept = await shelf.add(), await shelf.add(lives_s=10)
    for one in (file, swept):
        await insert_batch(shelf.database, account="other", input_file_id=one.file_id, status="in_progress")
    await shelf.store.delete("acct", file.file_id)
    shelf.pass_time(11)
    assert await shelf.store.sweep() == 1


async def test_a_file_ends_at_its_expiry_and_is_then_swept(shelf: Shelf) -> None:
    file, kept = await shelf.add(lives_s=10), await shelf.add(lives_s=100)
    await insert_batch(shelf.database, input_file_id=file.file_id, status="completed")
    shelf.pass_time(10)
    with pytest.raises(FileNotFound):
        await shelf.store.find("acct", file.file_id)
    assert await shelf.store.list_files("acct", Page()) == ([kept], False)
    assert await shelf.store.sweep() == 1
    assert len(shelf.objects.objects) == 1
    assert await shelf.content(kept) == b"content"


async def test_what_has_no_row_is_swept_once_it_is_old(shelf: Shelf) -> None:
    kept = await shelf.add()
    await shelf.objects.put("files/orphan", b"x")
    await shelf.objects.put("segments/other", b"x")
    assert await shelf.store.sweep_orphans(3600) == 0
    shelf.pass_time(3601)
    assert await shelf.store.sweep_orphans(3600) == 1
    assert await shelf.content(kept) == b"content"
    assert "segments/other" in shelf.objects.objects


async def test_a_clock_that_jumps_ahead_destroys_nothing(shelf: Shelf) -> None:
    file = await shelf.add(lives_s=10)
    await shelf.objects.put("files/orphan", b"x")  # As it is while its row is being written.
    shelf.clock.advance(1e9)
    with pytest.raises(FileNotFound):
        await shelf.store.find("acct", file.file_id)
    assert await shelf.store.sweep() == 0
    assert await shelf.store.sweep_orphans(3600) == 0
    shelf.clock.advance(-1e9)
    assert await shelf.content(await shelf.store.find("acct", file.file_id)) == b"content"


async def test_content_that_was_changed_or_swapped_is_not_given_out(shelf: Shelf) -> None:
    one, two = await shelf.add(b"one"), await shelf.add(b"two")
    first, second = shelf.objects.objects
    shelf.objects.objects[first] = shelf.objects.objects[second]
    with pytest.raises(StoreUnavailable):
        await shelf.content(one)
    assert await shelf.content(two) == b"two"
    del shelf.objects.objects[second]
    with pytest.raises(StoreUnavailable):
        await shelf.content(two)


async def test_a_key_cannot_be_moved_to_another_account(shelf: Shelf) -> None:
    file = await shelf.add()
    async with shelf.database.write() as connection:
        await connection.execute(update(files).values(account="thief"))
    with pytest.raises(Exception, match="cannot be opened"):
        await shelf.store.find("thief", file.file_id)


async def test_a_full_store_leaves_nothing_behind(shelf: Shelf) -> None:
    shelf.objects.room_bytes = 1000
    with pytest.raises(StoreFull):
        await shelf.add(b"x" * 2000)
    assert shelf.objects.objects == {}
    assert await shelf.store.list_files("acct", Page()) == ([], False)


async def test_bytes_are_counted_by_account(shelf: Shelf) -> None:
    await shelf.add(b"12345")
    await shelf.add(b"123")
    assert await num_bytes_of(shelf.store, "acct") == 8
    assert await num_bytes_of(shelf.store, "other") == 0
