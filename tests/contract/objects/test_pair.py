"""Two object stores that hold the same: either may go away, and what it missed is brought up later."""

from pathlib import Path

import pytest

from deployments.config import ConfigError
from deployments.state.database.connection import Database
from deployments.state.objects.config import ObjectStoreConfig, ResolvedObjectStore, resolve_object_store
from deployments.state.objects.copies import BACK_OFF_S, Backlog, Copier, PendingCopies, Side
from deployments.state.objects.marker import open_objects
from deployments.state.objects.pair import PairedStore
from deployments.state.objects.store import ObjectMissing, StoreFull, StoreUnavailable
from tests.twins.objects import MemoryObjects

PART = 5 * 1024 * 1024


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pair:
    """Two stores in memory, on a clock of the test's."""

    def __init__(self, database: Database, *, waits_for_both: bool = True) -> None:
        self.clock = Clock()
        self.near, self.far = MemoryObjects(self.clock), MemoryObjects(self.clock)
        self.pending = PendingCopies(database, self.clock)
        self.store = PairedStore(
            Side("near", self.near, self.clock),
            Side("far", self.far, self.clock),
            self.pending,
            waits_for_both=waits_for_both,
        )
        self.copier = Copier(self.store.near, self.store.far, self.pending)

    async def write(self, key: str, content: bytes) -> None:
        async with self.store.create(key) as writer:
            for start in range(0, len(content), 1000):
                await writer.write(content[start : start + 1000])


@pytest.fixture
def pair(database: Database) -> Pair:
    return Pair(database)


async def test_both_have_what_was_written_and_nothing_is_owed(pair: Pair) -> None:
    await pair.write("files/a", b"x" * 5000)
    await pair.store.put("files/b", b"y")
    assert pair.near.objects == pair.far.objects == {"files/a": b"x" * 5000, "files/b": b"y"}
    assert await pair.pending.backlog() == {}


@pytest.mark.parametrize("lost", ["near", "far"])
async def test_while_one_is_away_the_other_serves_and_the_copier_brings_it_up(pair: Pair, lost: str) -> None:
    away, there = getattr(pair, lost), pair.far if lost == "near" else pair.near
    await pair.store.put("files/old", b"old")
    away.is_away = True
    await pair.write("files/a", b"x" * 5000)
    await pair.store.put("files/b", b"")
    await pair.store.delete("files/old")
    assert await pair.store.read("files/a", 10, 12) == b"xx"
    assert there.objects == {"files/a": b"x" * 5000, "files/b": b""}
    pair.clock.now += 100
    assert await pair.pending.backlog() == {lost: Backlog(3, 100.0)}
    assert await pair.copier.run() == 0
    away.is_away = False
    assert await pair.copier.run() == 3
    assert away.objects == there.objects
    assert await pair.pending.backlog() == {}


async def test_a_store_that_goes_away_amid_an_object_lacks_it(pair: Pair) -> None:
    async with pair.store.create("files/a") as writer:
        await writer.write(b"one")
        pair.far.is_away = True
        await writer.write(b"two")
    assert pair.near.objects == {"files/a": b"onetwo"}
    assert await pair.pending.backlog() == {"far": Backlog(1, 0.0)}


async def test_a_store_that_fails_at_the_very_end_lacks_the_object(pair: Pair) -> None:
    async with pair.store.create("files/a") as writer:
        await writer.write(b"one")
        pair.near.is_away = True
    assert pair.far.objects == {"files/a": b"one"}
    assert await pair.pending.backlog() == {"near": Backlog(1, 0.0)}


async def test_with_both_away_nothing_is_written_and_the_reason_is_the_stores(pair: Pair) -> None:
    pair.near.is_away = pair.far.is_away = True
    with pytest.raises(StoreUnavailable):
        await pair.write("files/a", b"x")
    with pytest.raises(StoreUnavailable):
        await pair.store.read("files/a", 0, 1)
    for work in (pair.store.delete("files/a"), pair.store.put("files/a", b"x")):
        with pytest.raises(StoreUnavailable):
            await work
    pair.near.is_away = pair.far.is_away = False
    pair.clock.now += BACK_OFF_S
    pair.near.room_bytes = pair.far.room_bytes = 10
    with pytest.raises(StoreFull):
        await pair.write("files/a", b"x" * 11)
    with pytest.raises(StoreFull):
        await pair.store.put("files/a", b"x" * 11)
    assert await pair.pending.backlog() == {}


async def test_an_object_that_one_lacks_for_now_is_read_from_the_other(pair: Pair) -> None:
    await pair.far.put("files/a", b"x")
    assert await pair.store.read("files/a", 0, 1) == b"x"
    assert await pair.store.size("files/a") == 1
    with pytest.raises(ObjectMissing):
        await pair.store.read("files/b", 0, 1)
    pair.far.is_away = True  # It may have the object.
    with pytest.raises(StoreUnavailable):
        await pair.store.read("files/b", 0, 1)


async def test_a_store_that_has_failed_is_left_alone_for_a_while(pair: Pair) -> None:
    pair.near.is_away = True
    await pair.store.put("files/a", b"x")
    pair.near.is_away = False
    await pair.write("files/b", b"x")
    assert sorted(pair.near.objects) == []
    pair.clock.now += BACK_OFF_S
    await pair.write("files/c", b"x")
    assert sorted(pair.near.objects) == ["files/c"]
    assert (await pair.pending.backlog())["near"].num_objects == 2


async def test_one_copies_later_where_that_is_asked_for(database: Database) -> None:
    pair = Pair(database, waits_for_both=False)
    await pair.write("files/a", b"x" * 2500)
    await pair.store.put("files/b", b"y")
    assert pair.far.objects == {}
    assert await pair.copier.run() == 2
    assert pair.far.objects == pair.near.objects


async def test_what_was_deleted_before_it_was_copied_is_not_copied(database: Database) -> None:
    pair = Pair(database, waits_for_both=False)
    await pair.write("files/a", b"x")
    await pair.store.delete("files/a")
    await pair.copier.run()
    assert pair.far.objects == {}
    assert await pair.pending.backlog() == {}


async def test_a_note_that_was_replaced_meanwhile_stays(pair: Pair) -> None:
    await pair.pending.add("far", "files/a")
    (note,) = await pair.pending.oldest("far", 10)
    await pair.pending.add("far", "files/a", is_deleted=True)
    await pair.pending.settle(note)
    (kept,) = await pair.pending.oldest("far", 10)
    assert kept.is_deleted


async def test_what_is_given_up_appears_in_neither(pair: Pair) -> None:
    with pytest.raises(KeyError):
        async with pair.store.create("files/a") as writer:
            await writer.write(b"x")
            raise KeyError
    assert pair.near.objects == pair.far.objects == {}
    assert await pair.pending.backlog() == {}


async def test_a_listing_has_each_object_once_and_all_of_one_where_the_other_fails(pair: Pair) -> None:
    await pair.store.put("files/a", b"x")
    await pair.far.put("files/b", b"x")
    assert [one.key async for one in pair.store.list_objects("files")] == ["files/a", "files/b"]
    pair.far.is_away = True
    assert [one.key async for one in pair.store.list_objects("files")] == ["files/a"]
    pair.near.is_away = True
    with pytest.raises(StoreUnavailable):
        [one async for one in pair.store.list_objects("files")]


@pytest.fixture
def places(tmp_path: Path, bucket: ResolvedObjectStore) -> tuple[ObjectStoreConfig, dict[str, str]]:
    """The settings of a directory and a bucket of a real S3 server."""
    other = {"name": "asia", "url": bucket.url, "endpoint": bucket.options["endpoint"], "region": "us-east-1"}
    secrets = {"access_key_id": {"env": "ID"}, "secret_access_key": {"env": "SECRET"}}
    config = {"url": (tmp_path / "objects").as_uri(), "other": other | secrets}
    return ObjectStoreConfig.model_validate(config), {"ID": "testing", "SECRET": "testing"}


async def test_a_directory_and_a_bucket_that_are_configured_hold_the_same(
    database: Database, tmp_path: Path, places: tuple[ObjectStoreConfig, dict[str, str]]
) -> None:
    config, environ = places
    place = resolve_object_store(config, tmp_path, environ)
    opened = await open_objects(database, place)
    assert isinstance(opened, PairedStore)
    content = bytes(range(256)) * (PART // 128)
    async with opened.create("files/a") as writer:
        for start in range(0, len(content), PART // 3):
            await writer.write(content[start : start + PART // 3])
    for side in opened.sides:
        assert await side.store.read("files/a", 0, len(content)) == content
    await open_objects(database, place)  # Both know whose they are.


async def test_the_copier_copies_large_objects_between_real_stores(
    database: Database, tmp_path: Path, places: tuple[ObjectStoreConfig, dict[str, str]]
) -> None:
    config, environ = places
    later = config.model_copy(update={"copies": "later"})
    opened = await open_objects(database, resolve_object_store(later, tmp_path, environ))
    assert isinstance(opened, PairedStore)
    content = b"0123456789abcdef" * (2 * PART // 16)
    async with opened.create("files/a") as writer:
        await writer.write(content)
    with pytest.raises(ObjectMissing):
        await opened.far.store.size("files/a")
    assert opened.pending is not None
    assert await Copier(opened.near, opened.far, opened.pending).run() == 1
    assert await opened.far.store.read("files/a", 0, len(content)) == content


async def test_another_database_s_second_store_is_refused(database: Database, tmp_path: Path) -> None:
    near, far = ((tmp_path / name).as_uri() for name in ("near", "far"))
    place = ResolvedObjectStore(near, other=ResolvedObjectStore(far, name="asia"))
    await open_objects(database, place)
    (tmp_path / "far" / "manta-marker").write_bytes(b"another")
    with pytest.raises(ConfigError, match="belongs to another database"):
        await open_objects(database, place)


def test_two_stores_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="needs another name"):
        ObjectStoreConfig.model_validate({"other": {"url": "s3://asia"}})
