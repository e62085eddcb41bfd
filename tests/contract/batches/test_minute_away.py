"""A minute without the database or the object store, with the settings that the service has: the batch waits, requests
get an error that says so, and it goes on by itself. The outages lie side by side: all of them mostly wait.
"""

import asyncio
import json
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import pytest

from deployments.state.objects.config import ResolvedObjectStore
from serve_app.errors.capacity import STORED_FILES_AWAY
from tests.contract.batches.outages import Relay, Watched
from tests.contract.batches.process import AS_SERVED, open_all
from tests.contract.batches.runs import NUM_LINES, Runs
from tests.contract.http.conftest import World
from tests.contract.objects.volumes import mounted
from tests.contract.state.postgres import PostgresServer

AWAY_S = 60.0
# Who waits looks again after five seconds at the latest; the rest is for the trying, on a machine that is busy.
RESUMES_S = 15.0
# A server that hangs is waited for ten seconds at a time, and once more where the first connection was an old one.
ANSWERS_S = 25.0
STEPS = ["validating", "in_progress", "finalizing", "completed"]
DATABASE_AWAY = "The database cannot be reached right now. Please retry your request."


@dataclass
class Outage:
    """A batch's stores; one goes away and comes back."""

    name: str
    database_url: str
    objects_at: str
    begin: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]]
    num_coordinators: int = 1
    told: set[str] = field(default_factory=set)
    """The error messages of requests in the meantime."""

    @property
    def places(self) -> tuple[str, str]:
        """Where the stores are."""
        return self.database_url, self.objects_at


def of_server(
    name: str, server: PostgresServer, begin: Callable[[], None], end: Callable[[], None], directory: Path
) -> Outage:
    """Return the outage of a database over which two coordinators work, so that one may take the other's claim."""
    places = server.create_database(), (directory / f"objects-{server.port}").as_uri()
    return Outage(name, *places, off_loop(begin), off_loop(end), num_coordinators=2, told={DATABASE_AWAY})


def off_loop(work: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    """Return work to be awaited, done in a thread."""
    return partial(asyncio.to_thread, work)


def sqlite_in(directory: Path) -> str:
    """Return the URL of a database of its own."""
    return f"sqlite+aiosqlite:///{directory / secrets.token_hex(4)}.db"


class Disk:
    """What is mounted at a place; where it is not, the place is empty and takes what it is given."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._content = place.with_name(f"{place.name}, unmounted")

    async def mount(self) -> None:
        shutil.rmtree(self.place)
        self._content.rename(self.place)

    async def unmount(self) -> None:
        self.place.rename(self._content)
        self.place.mkdir()


class Client:
    """A client that looks at a batch and at its input, all the while."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.statuses: list[str] = []
        self.told: set[str] = set()
        self.slowest_s = 0.0
        self._http = http

    async def look_for_ever(self, batch_id: str) -> None:
        while True:
            shown = await self._get(f"/v1/batches/{batch_id}")
            if shown is not None:
                assert shown.status_code == 200, shown.text
                self.statuses.append(shown.json()["status"])
            content = await self._get("/v1/files/file-1/content")
            assert content is None or content.status_code in (200, 404), content.text  # It goes when the batch ends.
            await asyncio.sleep(1)

    async def _get(self, path: str) -> httpx2.Response | None:
        """Return the answer, None where it says that a store is away."""
        began = time.monotonic()
        answer = await self._http.get(path)
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        if answer.status_code != 503:
            return answer
        assert answer.headers["retry-after"] == "1"
        self.told.add(answer.json()["error"]["message"])
        return None


async def outlive(outage: Outage, runs: Runs, world: World) -> None:
    """Have a batch run through the outage, from when a few of its lines are done, and check what becomes of it."""
    world.files, world.batches = runs.stores.files, runs.stores.batches
    async with world.http() as http:
        client = Client(http)
        batch_id = await runs.submit()
        running = [Watched(runs.start(AS_SERVED)) for _ in range(outage.num_coordinators)]
        looking = asyncio.create_task(client.look_for_ever(batch_id))
        try:
            await runs.until_done(batch_id, 4)
            await outage.begin()
            await asyncio.sleep(AWAY_S)
            assert any(process.has_failed() for process in running), outage.name
            await outage.end()
            began = time.monotonic()
            num_done = (await runs.stores.work.look(batch_id)).num_done
            await runs.until_done(batch_id, num_done + 1)
            resumed_s = time.monotonic() - began
            for process in running:
                await process.ended()
            await runs.check(batch_id)
            if looking.done():
                await looking
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            for process in running:
                process.remove()
            await runs.close()
    assert num_done < NUM_LINES // 2, outage.name
    assert resumed_s < RESUMES_S, outage.name
    assert client.slowest_s < ANSWERS_S, outage.name
    assert client.told == outage.told, outage.name
    assert client.statuses == sorted(client.statuses, key=STEPS.index), outage.name


@pytest.mark.exhaustive  # A minute by design; `test_stores_away` shows its first seconds.
@pytest.mark.timeout(600)
async def test_a_batch_outlives_a_minute_without_its_stores(
    world: World, mortal_postgres: PostgresServer, bucket: ResolvedObjectStore, tmp_path: Path
) -> None:
    world.principal(account="acct", requests_per_minute=1_000_000)
    async with AsyncExitStack() as stack:
        killed = PostgresServer()
        stack.callback(killed.remove)
        killed.start()
        outages = [
            of_server(
                "a database that hangs", mortal_postgres, mortal_postgres.pause, mortal_postgres.resume, tmp_path
            ),
            of_server("a database that is killed", killed, killed.kill, killed.start, tmp_path),
        ]
        for name in ("a bucket that refuses", "a bucket that is silent"):
            relay = Relay(int(bucket.options["endpoint"].rpartition(":")[2]))
            await relay.start()
            stack.push_async_callback(relay.cut)
            ways = (relay.cut, relay.start) if "refuses" in name else (relay.hold, relay.release)
            options = {**bucket.options, "endpoint": f"http://127.0.0.1:{relay.port}"}
            objects_at = json.dumps({"url": f"{bucket.url}/{relay.port}", "options": options})
            outages.append(Outage(name, sqlite_in(tmp_path), objects_at, *ways, told={STORED_FILES_AWAY}))
        disk = Disk(tmp_path / "mount point")
        places = sqlite_in(tmp_path), disk.place.as_uri()
        ways = (disk.unmount, disk.mount)
        outages.append(Outage("a disk that is not mounted", *places, *ways, told={STORED_FILES_AWAY}))
        with suppress(pytest.skip.Exception):  # Where nothing can be mounted, the others are tried all the same.
            for name in ("a disk that is full", "a disk that is read-only"):
                volume = mounted(tmp_path / name)
                stack.callback(volume.remove)
                is_full = "full" in name
                steps = (volume.fill, volume.free) if is_full else (volume.forbid_writing, volume.allow_writing)
                objects_at = (volume.place / "objects").as_uri()
                outages.append(Outage(name, sqlite_in(tmp_path), objects_at, *map(off_loop, steps)))
        runs = [Runs(one.database_url, one.objects_at, await open_all(*one.places)) for one in outages]
        outlived = (outlive(outage, each, world) for outage, each in zip(outages, runs, strict=True))
        failed = [one for one in await asyncio.gather(*outlived, return_exceptions=True) if one is not None]
    if failed:
        raise BaseExceptionGroup("These were not outlived.", failed)
