"""A database or an object store that is away in the middle of a batch: it waits, goes on, and each line counts once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deployments.state.objects.config import ResolvedObjectStore
from tests.contract.batches.outages import Relay, Watched
from tests.contract.batches.process import SLOWLY, open_all
from tests.contract.batches.runs import Runs
from tests.contract.objects.volumes import mounted
from tests.contract.state.postgres import PostgresServer
from tests.waiting import eventually


@asynccontextmanager
async def running_batch(runs: Runs) -> AsyncIterator[Watched]:
    """Have a process run a batch with some lines done; check it when it has ended."""
    batch_id = await runs.submit()
    watched = Watched(runs.start(SLOWLY))
    try:
        await runs.until_done(batch_id, 4)
        yield watched
        await watched.ended()
        await runs.check(batch_id)
    finally:
        watched.remove()
        await runs.close()


@pytest.mark.parametrize("how", [pytest.param("stopped", marks=pytest.mark.exhaustive), "killed"])
async def test_a_batch_outlives_its_database(mortal_postgres: PostgresServer, tmp_path: Path, how: str) -> None:
    server = mortal_postgres
    places = server.create_database(), (tmp_path / "objects").as_uri()
    async with running_batch(Runs(*places, await open_all(*places))) as watched:
        if how == "stopped":
            server.pause()
        else:
            server.kill()
        await eventually(watched.has_failed)
        if how == "stopped":
            server.resume()
        else:
            server.start()


@pytest.mark.parametrize(
    "trouble",
    [
        "full",
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("full, with the database on it", "read-only")),
    ],
)
async def test_a_batch_outlives_a_directory_that_takes_nothing(tmp_path: Path, trouble: str) -> None:
    volume = mounted(tmp_path / "volume")
    try:
        beside = volume.place if "database" in trouble else tmp_path
        places = f"sqlite+aiosqlite:///{beside}/manta.db", (volume.place / "objects").as_uri()
        async with running_batch(Runs(*places, await open_all(*places))) as watched:
            if trouble == "read-only":
                volume.forbid_writing()
            else:
                volume.fill()
            await eventually(watched.has_failed)
            if trouble == "read-only":
                volume.allow_writing()
            else:
                volume.free()
    finally:
        volume.remove()


@pytest.mark.parametrize("how", [pytest.param("refuses", marks=pytest.mark.exhaustive), "is silent"])
async def test_a_batch_outlives_its_bucket(bucket: ResolvedObjectStore, tmp_path: Path, how: str) -> None:
    relay = Relay(int(bucket.options["endpoint"].rpartition(":")[2]))
    await relay.start()
    options = {**bucket.options, "endpoint": f"http://127.0.0.1:{relay.port}"}
    objects = json.dumps({"url": bucket.url, "timeout_s": 2, "options": options})
    places = f"sqlite+aiosqlite:///{tmp_path}/manta.db", objects
    async with running_batch(Runs(*places, await open_all(*places))) as watched:
        begin, end = (relay.cut, relay.start) if how == "refuses" else (relay.hold, relay.release)
        await begin()
        await eventually(watched.has_failed)
        await end()
    await relay.cut()
