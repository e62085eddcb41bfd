"""The coordinator: claims batches and runs each to its end.

`batch.actor` runs one for the whole service. Any number may share a database: only one holds a batch at a time, and
another takes it over when its lease ends.
"""

import asyncio
import logging
from contextlib import suppress

from sqlalchemy.exc import DBAPIError

from batch.config import INTERVALS, MAX_RUNNING, MAX_RUNNING_IN_ALL, Intervals
from batch.run import BatchRun, Paused, RunContext
from deployments.state.batches.ledger import Fenced
from deployments.state.batches.rows import Batch
from deployments.state.objects.pair import write_near_only
from deployments.waiting import end_all, wait_at_most, worth_logging
from serve_app.telemetry.log import log_bug

logger = logging.getLogger(__name__)

_AFTER_BUG_S = 5.0


class Coordinator:
    """Claims and runs up to MAX_RUNNING batches at a time, and the first of each account beyond that."""

    def __init__(self, context: RunContext, intervals: Intervals = INTERVALS) -> None:
        self._context = context
        self._work = context.stores.work
        self._intervals = intervals
        self._running: dict[asyncio.Task[None], Batch] = {}
        self._wake = asyncio.Event()
        self._num_failures = 0

    async def run(self) -> None:
        """Claim and run batches until cancelled; then release the claims."""
        try:
            while True:
                await self._claim_all()
                await wait_at_most(self._wake, self._intervals.poll_s)
                self._wake.clear()
        finally:
            claimed = list(self._running.values())
            await end_all(self._running)
            for batch in claimed:
                await self._release(batch)

    def poke(self) -> None:
        """Look for new batches now."""
        self._wake.set()

    async def _claim_all(self) -> None:
        while len(self._running) < MAX_RUNNING_IN_ALL:
            running, is_full = list(self._running.values()), len(self._running) >= MAX_RUNNING
            try:
                batch = await self._work.claim(self._context.config.lease_s, running, only_first=is_full)
            except (DBAPIError, OSError) as error:
                self._num_failures += 1
                if worth_logging(self._num_failures):
                    kind = type(error).__name__
                    logger.warning("Batches could not be claimed %d times: %s", self._num_failures, kind)
                return
            except Exception as error:  # The batch may be claimed; it is tried again when the lease ends.
                log_bug("claim", error)
                return
            self._num_failures = 0
            if batch is None:
                return
            task = asyncio.create_task(self._run(batch))
            self._running[task] = batch
            task.add_done_callback(self._forget)

    async def _release(self, batch: Batch) -> None:
        with suppress(Fenced, DBAPIError, OSError):
            await self._work.release(batch.batch_id, batch.state.epoch)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._wake.set()

    async def _run(self, batch: Batch) -> None:
        if batch.principal.regions is not None:
            write_near_only()
        try:
            await BatchRun(self._context, batch).run()
        except Paused:
            logger.info("%s is paused.", batch.batch_id)
            await self._release(batch)
        except Fenced as error:
            logger.info("Another coordinator has taken over %s: %s", batch.batch_id, error)
        except Exception as error:  # The batch is tried again when the lease ends.
            log_bug(batch.batch_id, error)
            await asyncio.sleep(_AFTER_BUG_S)
