"""The fleet on a Ray cluster: one permanent worker, and a Ray Data job for the rest of each large batch.

The coordinator's process holds it. Only places of lines travel to the workers and only counts come back: the content of
lines never goes through Ray.
"""

import asyncio
import logging
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError
from typing_extensions import override

from batch.config import MAX_JOBS, SLICE_LINES
from batch.setup import BatchSetup, log_errors
from batch.worker import ClaimedBatch, Fleet, FleetDown, LineWorker
from deployments.state.batches.ledger import Fenced
from deployments.waiting import BackgroundLoop
from serve_app.telemetry.log import log_bug
from serve_app.validation.batch_lines import Place

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
_MAX_CALLS = 64
_PLACE = struct.Struct("<III")


class WorkerProcess:
    """A `LineWorker` in a process of its own: an actor for small batches, a caller in a Ray Data job for large ones."""

    def __init__(self, setup: BatchSetup) -> None:
        log_errors()
        self._loop = BackgroundLoop("batch-worker")
        self._worker: LineWorker = self._loop.run(setup.create_worker(), _START_TIMEOUT_S)

    def ready(self) -> int:
        """Return the process id."""
        return os.getpid()

    def run(self, batch: ClaimedBatch, packed: bytes) -> int:
        """Run lines as `LineWorker.run` does; return their number.

        Raises:
            Fenced: another coordinator has claimed the batch.
        """
        places = unpack_places(packed)
        try:
            self._loop.run(self._worker.run(batch, places))
        except Fenced as fenced:
            raise Fenced(str(fenced)) from None
        except Exception as error:  # Its message may quote content, and Ray would log it.
            log_bug(batch.batch_id, error)
            raise RuntimeError("A worker failed; see its error log.") from None
        return len(places)


class LineCaller:
    """The callable of a Ray Data job: maps slices, which are packed places of lines, to their numbers of lines."""

    def __init__(self, setup: BatchSetup, batch: ClaimedBatch) -> None:
        self._process = WorkerProcess(setup)
        self._batch = batch

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Run the lines of the slices."""
        return {"num_lines": np.array([self._process.run(self._batch, packed) for packed in rows["places"]])}


class RayFleet(Fleet):
    """A `Fleet` on a Ray cluster. Its processes end with the process that holds it."""

    def __init__(self, setup: BatchSetup) -> None:
        self._setup = setup
        self._config = setup.config
        self._shared: asyncio.Task[Any] | None = None
        self._alone: dict[str, Any] = {}
        self._num_jobs = 0

    async def warm_up(self) -> None:
        """Start the permanent worker.

        Raises:
            FleetDown: it does not start.
        """
        await self._shared_worker()

    @override
    async def run(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        """Run the first lines in the permanent worker and the rest in a Ray Data job, if there is room for a job.

        Without room all lines run in the permanent worker: to wait for another batch's job may take hours.
        """
        small = self._config.small_batch_lines
        has_job = len(places) > small and self._num_jobs < MAX_JOBS
        first = small if has_job else len(places)
        work = [self._run_shared(batch, places[:first])] if first else []
        if has_job:
            work.append(asyncio.to_thread(self._run_job, batch, places[first:]))
        self._num_jobs += has_job
        try:
            for result in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(result, BaseException):
                    raise result
        finally:
            self._num_jobs -= has_job

    async def _run_shared(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        worker = await self._shared_worker()
        held = self._shared
        if not await _call(worker, batch, places) and self._shared is held:
            self._shared = None

    @override
    async def run_alone(self, batch: ClaimedBatch, place: Place) -> None:
        worker = self._alone.get(batch.batch_id)
        if worker is None:
            worker = self._alone[batch.batch_id] = await _start_worker(self._setup)
        if not await _call(worker, batch, [place]):
            del self._alone[batch.batch_id]

    @override
    async def forget(self, batch_id: str) -> None:
        worker = self._alone.pop(batch_id, None)
        if worker is not None:
            ray.kill(worker)

    @override
    async def close(self) -> None:
        for worker in self._alone.values():
            ray.kill(worker)
        self._alone.clear()
        if self._shared is not None:
            self._shared.cancel()
            if self._shared.done() and not self._shared.cancelled() and self._shared.exception() is None:
                ray.kill(self._shared.result())
            self._shared = None

    async def _shared_worker(self) -> Any:
        if self._shared is None:
            self._shared = asyncio.create_task(_start_worker(self._setup))
        starting = self._shared
        try:
            return await asyncio.shield(starting)
        except FleetDown:
            if self._shared is starting:
                self._shared = None
            raise

    def _run_job(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        """Run a Ray Data job. A job that breaks off leaves lines undone; `BatchRun` runs those again."""
        from ray.data import ActorPoolStrategy, DataContext, from_items  # 3 s to import, for large batches only.

        config = self._config
        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        share = max(1, config.max_lines_in_flight // (self._num_jobs * config.num_workers))
        shared = config.model_copy(update={"max_lines_in_flight": share})
        setup = replace(self._setup, config=shared)
        slices = [places[start : start + SLICE_LINES] for start in range(0, len(places), SLICE_LINES)]
        rows = [{"places": pack_places(one)} for one in slices]
        data = from_items(rows, override_num_blocks=len(rows)).map_batches(
            LineCaller,
            fn_constructor_args=(setup, batch),
            batch_size=1,
            # Two slices at a time, so that the models are busy while one ends.
            compute=ActorPoolStrategy(
                size=config.num_workers,
                max_tasks_in_flight_per_actor=2,
                max_concurrent_calls_per_actor=2,
                enable_true_multi_threading=True,
            ),
            num_cpus=config.num_cpus,
            max_restarts=0,
            max_task_retries=0,
        )
        try:
            for _ in data.iter_batches(batch_size=None, prefetch_batches=0):
                continue
        except Exception as error:  # The workers have logged its cause.
            logger.warning("The job of %s broke off: %s", batch.batch_id, type(error).__name__)


def pack_places(places: Iterable[Place]) -> bytes:
    """Return places as bytes, 12 for each."""
    return b"".join(_PLACE.pack(*place) for place in places)


def unpack_places(packed: bytes) -> list[Place]:
    """Return the places that `pack_places` packed."""
    return [Place(*place) for place in _PLACE.iter_unpack(packed)]


async def _start_worker(setup: BatchSetup) -> Any:
    options = {
        "num_cpus": setup.config.num_cpus,
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": _MAX_CALLS,
    }
    worker = ray.remote(WorkerProcess).options(**options).remote(setup)
    try:
        await asyncio.wait_for(worker.ready.remote(), _START_TIMEOUT_S)
    except (RayError, TimeoutError) as error:
        ray.kill(worker)
        raise FleetDown(f"A worker does not start: {type(error).__name__}.") from None
    return worker


async def _call(worker: Any, batch: ClaimedBatch, places: Sequence[Place]) -> bool:
    """Run lines in a worker; return whether it is still alive."""
    try:
        await worker.run.remote(batch, pack_places(places))
    except RayActorError:
        logger.warning("A worker died over lines of %s.", batch.batch_id)
        return False
    except Fenced:  # Ray adds the traceback of the other process.
        raise Fenced("Another coordinator has claimed the batch.") from None
    except RayError as error:
        logger.warning("A worker failed over lines of %s: %s", batch.batch_id, type(error).__name__)
    return True
