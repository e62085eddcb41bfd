"""A process that runs batches over real stores and a scripted engine, and ends or stops itself at a named point.

It runs until there is no batch left that has not ended. Ending itself means SIGKILL: nothing is cleaned up. Stopping
itself means SIGSTOP: it holds what it held, and goes on with SIGCONT.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from sqlalchemy import func, select

import batch.input
import batch.merge
import batch.run
import batch.worker
import deployments.state.batches.work as work_module
from batch.config import BatchConfig, Intervals
from batch.coordinator import Coordinator
from batch.run import RunContext
from batch.stores import SegmentStore, Stores, create_stores, retry_outages
from batch.worker import LineWorker
from deployments.patience import USUAL, Patience
from deployments.state.batches.store import BatchStore
from deployments.state.batches.work import BatchWork
from deployments.state.config import FilesConfig
from deployments.state.database import postgres as postgres_module
from deployments.state.database.connection import connect
from deployments.state.database.tables.content import ENDED, batches
from deployments.state.encryption.vault import Vault
from deployments.state.files.content import FileWriter
from deployments.state.files.store import FileStore
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.marker import open_objects
from deployments.state.responses.store import ResponseStore
from serve_app.operations.registry import create_operations
from serve_app.operations.responses.storage import storage_in
from serve_app.operations.routing import cache_salts
from tests.contract.http.answers import MODEL, answer
from tests.twins.engine import MemoryDirectory, ScriptedEngine, model_card
from tests.twins.fleet import LocalFleet

MASTER = b"m" * 32
PATIENCE_S = 2.0
LEASE_S = 2.0


def _signal_around(number: int, owner: Any, name: str, *, before: bool, at_call: int = 1) -> None:
    """Have the process signal itself before or after the n-th call of a function."""
    real = getattr(owner, name)
    calls = 0

    async def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        is_the_one = calls == at_call
        if before and is_the_one:
            os.kill(os.getpid(), number)
        result = await real(*args, **kwargs)
        if is_the_one and not before and result is not None:
            os.kill(os.getpid(), number)
        return result

    setattr(owner, name, deadly)


_kill_around = partial(_signal_around, signal.SIGKILL)


def _stop_around(owner: Any, name: str, *, before: bool, at_call: int = 1) -> None:
    """Have the process stop itself there, amid no transaction: it would keep everybody from the database."""

    async def never_renew(run: Any) -> None:
        await asyncio.Event().wait()

    batch.run.BatchRun._hold_claim = never_renew  # type: ignore[method-assign]
    _signal_around(signal.SIGSTOP, owner, name, before=before, at_call=at_call)


POINTS: dict[str, Callable[[], None]] = {
    "after the claim": lambda: _kill_around(BatchWork, "claim", before=False),
    "after validation": lambda: _kill_around(batch.input, "validate", before=False),
    "after the batch has begun": lambda: _kill_around(BatchWork, "begin", before=False),
    "after lines were called": lambda: _kill_around(SegmentStore, "prepare", before=True),
    "after a segment was sealed": lambda: _kill_around(SegmentStore, "write", before=True),
    "before a commit": lambda: _kill_around(BatchWork, "commit", before=True),
    "after a commit": lambda: _kill_around(BatchWork, "commit", before=False),
    "after the third commit": lambda: _kill_around(BatchWork, "commit", before=False, at_call=3),
    "before the outcomes are sealed": lambda: _kill_around(BatchWork, "seal", before=True),
    "after the outcomes were sealed": lambda: _kill_around(BatchWork, "seal", before=False),
    "while merging": lambda: _kill_around(FileWriter, "write", before=True),
    "at the end of merging": lambda: _kill_around(FileWriter, "finish", before=True),
    "after the output was written": lambda: _kill_around(BatchWork, "finish", before=True),
    "after the batch has ended": lambda: _kill_around(BatchWork, "finish", before=False),
}

RESPONSE_POINTS: dict[str, Callable[[], None]] = {
    "after a response was stored": lambda: _kill_around(ResponseStore, "save", before=False),
    **{name: POINTS[name] for name in ("after lines were called", "before a commit")},
}
"""Where a line that stores its response is killed before it is committed."""

STOPS: dict[str, Callable[[], None]] = {
    "stopped before a commit": lambda: _stop_around(BatchWork, "commit", before=True, at_call=2),
    "stopped before the outcomes are sealed": lambda: _stop_around(BatchWork, "seal", before=True),
    "stopped after the output was written": lambda: _stop_around(BatchWork, "finish", before=True),
}
AMID_A_COMMIT = "stopped amid a commit"
"""With the batch's row locked, which keeps others from the whole of SQLite."""
SLOWLY = "slowly"
AS_SERVED = "as served"
"""With the settings that the service has by default, and lines that come one by one for somewhat more than a minute."""
_LINE_S, _SLOW_LINE_S, _SPREAD_S = 0.02, 0.2, 1.75


async def open_all(database_url: str, objects_at: str, region: str = "", patience: Patience = USUAL) -> Stores:
    """Return the stores of a region; `objects_at` is a URL, or a `ResolvedObjectStore` as JSON."""
    database = await connect(database_url, patience)
    is_url = not objects_at.startswith("{")
    place = ResolvedObjectStore(objects_at) if is_url else ResolvedObjectStore(**json.loads(objects_at))
    objects = await open_objects(database, place)
    vault = Vault(database, MASTER)
    return create_stores(database, objects, FileStore(database, objects, vault), BatchStore(database, vault), region)


class SlowWorker(LineWorker):
    """A worker whose lines take a moment and wait for what is done to be committed: commits hold a few lines each."""

    line_s = _LINE_S

    async def _run_line(self, run: Any, reader: Any, place: Any) -> None:
        await asyncio.sleep(self.line_s)
        await super()._run_line(run, reader, place)


class SpreadWorker(LineWorker):
    """A worker whose lines are due one after the other, from its start on: a worker that takes over is not behind."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._began = time.monotonic()

    async def _run_line(self, run: Any, reader: Any, place: Any) -> None:
        await asyncio.sleep(self._began + place.line * _SPREAD_S - time.monotonic())
        await super()._run_line(run, reader, place)


async def num_unfinished(stores: Stores) -> int:
    query = select(func.count()).where(batches.c.status.not_in(ENDED))
    async with stores.database.read() as connection:
        return await connection.scalar(query) or 0


async def main(database_url: str, objects_at: str, point: str | None, region: str) -> None:
    kind: type[LineWorker] = SpreadWorker
    config, intervals, patience = BatchConfig(), Intervals(), USUAL
    if point != AS_SERVED:
        kind = SlowWorker
        config, intervals = BatchConfig(lease_s=LEASE_S, max_lines_in_flight=4), Intervals(poll_s=0.05, commit_s=0.05)
        if point is None:  # It must see an outage soon; the others must not take a busy machine for one.
            patience = replace(USUAL, database_connect_s=PATIENCE_S, database_answer_s=PATIENCE_S)
        postgres_module._IDLE_S = 1
        batch.worker._MAX_UNWRITTEN_BYTES = 1  # Or one that is slow to commit would have few commits left to make.
    stores = await open_all(database_url, objects_at, region, patience)
    if point == SLOWLY:
        SlowWorker.line_s = _SLOW_LINE_S
    elif point not in (None, AS_SERVED):
        # The row is written at the claim, at the begin, and then at each commit.
        amid = partial(_stop_around, work_module, "write_row", before=True, at_call=4)
        (POINTS | RESPONSE_POINTS | STOPS | {AMID_A_COMMIT: amid})[point]()
    directory = MemoryDirectory([ScriptedEngine(model_card(MODEL, "chat", "responses"), answer)])
    storage = storage_in(stores.database, stores.files)
    operations = create_operations(directory, cache_salts(b"salt"), storage=storage).by_path()
    fleet = LocalFleet(kind(stores, operations, config, None, intervals))
    coordinator = Coordinator(RunContext(stores, fleet, config, FilesConfig(), Tiers()), intervals)
    running = asyncio.create_task(coordinator.run())
    while await retry_outages("Counting batches", lambda: num_unfinished(stores)):  # noqa: ASYNC110 - others end them too.
        await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await stores.close()


def run(errors: Connection, database_url: str, objects_at: str, point: str | None = None, region: str = "") -> None:
    """Be that process. What it writes to its error stream goes into the pipe."""
    os.dup2(errors.fileno(), 2)
    asyncio.run(main(database_url, objects_at, point, region))
