"""What every object store keeps to: the twin, a directory, a bucket of a real S3 server, two that hold the same."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.copies import Side
from deployments.state.objects.pair import PairedStore
from deployments.state.objects.store import BucketStore, ObjectMissing, ObjectStore, StoreUnavailable
from tests.twins.objects import MemoryObjects

PART = 5 * 1024 * 1024


@pytest.fixture(params=["twin", "directory", "s3", "pair"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty object store, of each kind in turn."""
    if request.param == "twin":
        return MemoryObjects()
    directory = BucketStore(ResolvedObjectStore((tmp_path / "objects").as_uri()))
    if request.param == "directory":
        return directory
    bucket = BucketStore(request.getfixturevalue("bucket"))
    return bucket if request.param == "s3" else PairedStore(Side("near", directory), Side("far", bucket), None)


async def keys_of(objects: ObjectStore, prefix: str) -> list[str]:
    return sorted([one.key async for one in objects.list_objects(prefix)])


async def test_what_was_written_can_be_read_in_ranges(objects: ObjectStore) -> None:
    content = os.urandom(2 * PART + 17)
    async with objects.create("files/a") as writer:
        for start in range(0, len(content), 100_000):
            await writer.write(content[start : start + 100_000])
    assert await objects.read("files/a", 0, len(content)) == content
    assert await objects.read("files/a", PART - 3, PART + 3) == content[PART - 3 : PART + 3]
    assert await objects.read("files/a", len(content) - 5, len(content) + 100) == content[-5:]


async def test_an_object_has_a_size(objects: ObjectStore) -> None:
    await objects.put("files/a", b"12345")
    assert await objects.size("files/a") == 5
    with pytest.raises(ObjectMissing):
        await objects.size("files/b")


async def test_small_objects_are_written_at_once(objects: ObjectStore) -> None:
    await objects.put("files/a", b"one")
    await objects.put("files/a", b"another")
    assert await objects.read("files/a", 0, 100) == b"another"


@pytest.mark.parametrize("num_bytes", [10, 2 * PART])
async def test_an_object_that_is_given_up_never_appears(objects: ObjectStore, num_bytes: int) -> None:
    with pytest.raises(KeyError):
        async with objects.create("files/a") as writer:
            await writer.write(b"x" * num_bytes)
            assert await keys_of(objects, "files") == []
            raise KeyError
    await asyncio.sleep(0.05)
    assert await keys_of(objects, "files") == []
    with pytest.raises(ObjectMissing):
        await objects.read("files/a", 0, 1)


async def test_what_is_deleted_is_gone_and_may_be_deleted_again(objects: ObjectStore) -> None:
    await objects.put("files/a", b"one")
    await objects.delete("files/a")
    await objects.delete("files/a")
    with pytest.raises(ObjectMissing):
        await objects.read("files/a", 0, 1)


async def test_a_listing_names_a_folder_s_objects_only(objects: ObjectStore) -> None:
    for key in ("files/a", "files/b", "filesystem/c", "segments/x/1"):
        await objects.put(key, b"12345")
    assert await keys_of(objects, "files") == ["files/a", "files/b"]
    assert await keys_of(objects, "segments") == ["segments/x/1"]
    (one,) = [one async for one in objects.list_objects("segments")]
    assert one.num_bytes == 5


async def test_drafts_of_killed_writers_are_dropped_from_a_directory(tmp_path: Path) -> None:
    objects = BucketStore(ResolvedObjectStore(tmp_path.as_uri()))
    await objects.put("files/a", b"kept")
    for name, age_s in (("b#1", 7200), ("c#2", 10)):
        path = tmp_path / "files" / name
        path.write_bytes(b"draft")
        os.utime(path, (time.time() - age_s,) * 2)
    assert await objects.drop_unfinished(3600) == 1
    assert sorted(os.listdir(tmp_path / "files")) == ["a", "c#2"]


async def test_a_store_that_is_away_says_so_without_naming_places(tmp_path: Path) -> None:
    options = {"endpoint": "http://127.0.0.1:9", "region": "x", "access_key_id": "a", "secret_access_key": "b"}
    objects = BucketStore(ResolvedObjectStore("s3://bucket", timeout_s=0.5, options=options))
    with pytest.raises(StoreUnavailable) as failed:
        await objects.put("files/a", b"x")
    assert "bucket" not in str(failed.value)
    assert "127.0.0.1" not in str(failed.value)


def test_the_directory_is_the_owner_s_alone(tmp_path: Path) -> None:
    BucketStore(ResolvedObjectStore((tmp_path / "objects").as_uri()))
    assert (tmp_path / "objects").stat().st_mode & 0o777 == 0o700
