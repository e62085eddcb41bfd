"""A database or an object store that is away in the middle of a batch: it waits, goes on, and each line counts once."""

import subprocess
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.batches.process import open_all
from tests.contract.batches.runs import Runs
from tests.contract.state.postgres import PostgresServer
from tests.waiting import eventually


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
    watched = Watched(runs.start())
    try:
        await runs.until_done(batch_id, 4)
        yield watched
        await watched.ended()
        await runs.check(batch_id)
    finally:
        watched.remove()
        await runs.stores.close()


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
