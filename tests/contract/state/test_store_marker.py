"""A database and an object store that belong together: told at the start from those that do not."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from batch.stores import open_stores
from deployments.config import ConfigError
from deployments.state.config import ResolvedState, StateConfig, resolve_state
from deployments.state.database.connection import Database, connect
from deployments.state.database.tables.content import object_stores
from deployments.state.objects import marker as store_marker
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.marker import MARKER_KEY, adopt, check, mark, open_objects
from deployments.state.objects.store import BucketStore, ObjectMissing, ObjectStore, StoreUnavailable
from serve_app.cli import main
from serve_app.cli.supervise.welcome import open_state
from tests.twins.objects import MemoryObjects
from tests.waiting import eventually

URL = "file:///files"


async def marker_of(objects: ObjectStore) -> bytes:
    return await objects.read(MARKER_KEY, 0, 100)


async def test_the_first_start_writes_a_marker_and_later_ones_find_it(database: Database, objects: ObjectStore) -> None:
    await check(database, objects, URL)
    with pytest.raises(ObjectMissing):
        await marker_of(objects)
    await mark(database, objects, URL)
    marker = await marker_of(objects)
    assert len(marker) == 32
    await mark(database, objects, URL)
    await check(database, objects, URL)
    assert await marker_of(objects) == marker


async def test_a_store_that_is_empty_or_another_one_is_refused(database: Database, objects: ObjectStore) -> None:
    await mark(database, objects, URL)
    await objects.delete(MARKER_KEY)
    for look in (mark, check):
        with pytest.raises(ConfigError, match=r"file:///files is empty, or not the same as before") as refused:
            await look(database, objects, URL)
    assert "state.object_store.url, and whether its disk is mounted" in str(refused.value)
    assert "`manta adopt-object-store`" in str(refused.value)
    with pytest.raises(ObjectMissing):
        await marker_of(objects)
    await objects.put(MARKER_KEY, b"another")
    for look in (mark, check):
        with pytest.raises(ConfigError, match=r"belongs to another database than this one. Look at state.object_store"):
            await look(database, objects, URL)
    assert await marker_of(objects) == b"another"


async def test_an_empty_database_is_not_given_a_store_that_is_another_s(
    database: Database, objects: ObjectStore
) -> None:
    await objects.put(MARKER_KEY, b"another")
    for look in (mark, check):
        with pytest.raises(ConfigError, match="another database than this one, which has no files") as refused:
            await look(database, objects, URL)
    assert "Look at state.database_url" in str(refused.value)
    assert await marker_of(objects) == b"another"


async def test_what_is_adopted_belongs_together(database: Database, objects: ObjectStore) -> None:
    await objects.put(MARKER_KEY, b"another")
    await adopt(database, objects)
    marker = await marker_of(objects)
    await mark(database, objects, URL)
    await objects.delete(MARKER_KEY)
    await adopt(database, objects)
    await mark(database, objects, URL)
    assert await marker_of(objects) not in (marker, b"another")


async def test_a_start_that_is_killed_before_it_has_written_the_marker_harms_no_later_one(database: Database) -> None:
    objects = MemoryObjects()
    objects.room_bytes = 0
    with pytest.raises(Exception, match="no room"):
        await mark(database, objects, URL)
    objects.room_bytes = None
    await check(database, objects, URL)
    await mark(database, objects, URL)
    objects.objects.clear()
    with pytest.raises(ConfigError):
        await mark(database, objects, URL)


async def test_those_who_start_at_once_agree(database: Database, database_url: str, tmp_path: Path) -> None:
    others = [await connect(database_url) for _ in range(3)]
    store = BucketStore(ResolvedObjectStore(tmp_path.as_uri()))
    everybody = [database, *others]

    async def start(each: Database) -> bytes:
        await mark(each, store, URL)
        return await marker_of(store)

    (marker,) = set(await asyncio.gather(*(start(each) for each in everybody for _ in range(3))))
    assert set(await asyncio.gather(*map(start, everybody))) == {marker}
    async with database.read() as connection:
        rows = (await connection.execute(select(object_stores.c.marker, object_stores.c.is_written))).all()
    assert rows == [(marker.decode(), True)]
    for other in others:
        await other.close()


async def test_a_store_that_is_away_is_taken_for_the_right_one(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(store_marker.logger, "warning", lambda message, *args: told.append(message % args))
    options = {"endpoint": "http://127.0.0.1:9", "region": "x", "access_key_id": "a", "secret_access_key": "Geheimnis"}
    await open_objects(database, ResolvedObjectStore("s3://bucket", timeout_s=0.5, options=options))
    assert told == ["The object store could not be checked: StoreUnavailable"]


async def test_a_directory_whose_disk_is_not_mounted_takes_nothing_until_it_is(
    database: Database, tmp_path: Path
) -> None:
    place, elsewhere = tmp_path / "objects", tmp_path / "elsewhere"
    objects = await open_objects(database, ResolvedObjectStore(place.as_uri()))
    await objects.put("files/a", b"kept")
    place.rename(elsewhere)
    place.mkdir()
    with pytest.raises(StoreUnavailable):
        await objects.put("files/b", b"lost")
    with pytest.raises(StoreUnavailable):
        async with objects.create("files/c") as writer:
            await writer.write(b"lost")
    with pytest.raises(StoreUnavailable):
        await objects.read("files/a", 0, 4)
    assert list(place.iterdir()) == []
    place.rmdir()
    elsewhere.rename(place)
    assert await objects.read("files/a", 0, 4) == b"kept"
    await objects.put("files/b", b"kept")
    with pytest.raises(ObjectMissing):
        await objects.read("files/c", 0, 4)


async def test_an_upload_during_which_the_disk_goes_away_has_failed(database: Database, tmp_path: Path) -> None:
    place = tmp_path / "objects"
    objects = await open_objects(database, ResolvedObjectStore(place.as_uri()))
    with pytest.raises(StoreUnavailable):
        async with objects.create("files/a") as writer:
            await writer.write(b"lost")
            place.rename(tmp_path / "elsewhere")


async def test_an_ingress_waits_for_the_right_store_and_says_why(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(store_marker.logger, "warning", lambda message, *args: told.append(message % args))
    monkeypatch.setattr(store_marker, "_PATIENT_S", 0.01)
    place, elsewhere = tmp_path / "objects", tmp_path / "elsewhere"
    config = ResolvedObjectStore(place.as_uri())
    await (await open_objects(database, config)).put("files/a", b"kept")
    place.rename(elsewhere)
    opening = asyncio.create_task(open_objects(database, config, is_patient=True))
    await eventually(lambda: len(told) == 2)  # The first look and the tenth.
    assert not opening.done()
    assert "is empty, or not the same as before" in told[0]
    assert told[0].endswith("The object store is checked again each second.")
    place.rmdir()
    elsewhere.rename(place)
    assert await (await opening).read("files/a", 0, 4) == b"kept"


async def test_a_directory_that_cannot_be_made_is_named(database: Database, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"state.object_store.url, file:///.*/file/objects, cannot be created: Not a"):
        await open_objects(database, ResolvedObjectStore((tmp_path / "file" / "objects").as_uri()))


@pytest.fixture
def state(tmp_path: Path, database_url: str) -> ResolvedState:
    return replace(resolve_state(StateConfig(state_dir=tmp_path / "state"), {}), database_url=database_url)


def test_an_operator_is_told_of_a_disk_that_is_not_mounted_and_may_go_on_without(state: ResolvedState) -> None:
    async def start() -> None:
        await (await open_stores(state, 10)).close()

    asyncio.run(start())
    shutil.rmtree(state.state_dir / "objects")
    with pytest.raises(ConfigError, match="whether its disk is mounted"):
        asyncio.run(start())
    command = ["adopt-object-store", "--state-dir", str(state.state_dir), "--database-url", state.database_url]
    refused = CliRunner().invoke(main, command, input="n\n")
    assert refused.exit_code == 1
    with pytest.raises(ConfigError):
        asyncio.run(start())
    done = CliRunner().invoke(main, [*command, "--yes"])
    assert done.exit_code == 0, done.output
    assert "belongs to this database now" in done.stdout
    asyncio.run(start())


def test_manta_serve_refuses_before_it_starts_anything(state: ResolvedState) -> None:
    assert asyncio.run(open_state(state)) is not None
    assert asyncio.run(open_state(state)) is None
    shutil.rmtree(state.state_dir / "objects")
    with pytest.raises(ConfigError, match="whether its disk is mounted"):
        asyncio.run(open_state(state))
