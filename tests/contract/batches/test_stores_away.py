"""A database or an object store that is away in the middle of a batch: it waits, goes on, and each line counts once."""

import asyncio
import json
import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from deployments.state.object_config import ResolvedObjectStore
from tests.contract.batches.process import SLOWLY, open_all
from tests.contract.batches.runs import Runs
from tests.contract.objects.volumes import mounted
from tests.contract.state.postgres import PostgresServer
from tests.ports import free_port
from tests.waiting import eventually


class Relay:
    """A TCP relay to another port of this machine, which may be cut: who connects is then refused."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen, from the beginning or again."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def cut(self) -> None:
        """Close what is open and listen no more."""
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, far_writer}
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        self._writers -= {writer, far_writer}


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


class Watched:
    """A process, and what it writes to its error stream."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._told: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._told.append(line.decode())

    def has_failed(self) -> bool:
        """Something was tried and failed; the process goes on."""
        assert self.process.poll() is None, self._told
        return any("failed" in line or "cannot be claimed" in line for line in self._told)

    async def ended(self) -> None:
        """Return once the process has ended by itself."""
        await eventually(lambda: self.process.poll() is not None, 120)
        assert self.process.returncode == 0, self._told

    def remove(self) -> None:
        """End the process, if it has not ended."""
        self.process.kill()
        self.process.wait(timeout=30)
        self._reading.join(timeout=30)
        assert self.process.stderr is not None
        self.process.stderr.close()


@asynccontextmanager
async def running_batch(runs: Runs) -> AsyncIterator[Watched]:
    """Have a process run a batch of which some lines are done; check it when it has ended."""
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


@pytest.mark.parametrize("how", ["stopped", "killed"])
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


@pytest.mark.parametrize("trouble", ["full", "full, with the database on it", "read-only"])
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


async def test_a_batch_outlives_its_bucket(bucket: ResolvedObjectStore, tmp_path: Path) -> None:
    relay = Relay(int(bucket.options["endpoint"].rpartition(":")[2]))
    await relay.start()
    options = {**bucket.options, "endpoint": f"http://127.0.0.1:{relay.port}"}
    objects = json.dumps({"url": bucket.url, "timeout_s": 2, "options": options})
    places = f"sqlite+aiosqlite:///{tmp_path}/manta.db", objects
    async with running_batch(Runs(*places, await open_all(*places))) as watched:
        await relay.cut()
        await eventually(watched.has_failed)
        await relay.start()
    await relay.cut()
