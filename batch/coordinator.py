"""The coordinator: claims batches and sees them to their end.

Any number may run over the same database: what one has claimed, others leave alone until its claim runs out.
"""

import asyncio
import logging
from contextlib import suppress

from sqlalchemy.exc import DBAPIError

from batch.config import INTERVALS, MAX_RUNNING, BatchConfig, Intervals
from batch.fleet import Fleet
from batch.run import BatchRun
from batch.stores import Stores
from deployments.state.batches.ledger import Fenced
from deployments.state.batches.rows import Batch
from deployments.state.identity.tiers import Tiers
from deployments.state.retention import FilesConfig
from deployments.waiting import wait_at_most, worth_logging
from serve_app.telemetry.log import log_bug

logger = logging.getLogger(__name__)

_AFTER_BUG_S = 5.0


class Coordinator:
    """Works on batches until it is closed."""

    def __init__(
        self,
        stores: Stores,
        fleet: Fleet,
        config: BatchConfig,
        rules: FilesConfig,
        tiers: Tiers,
        intervals: Intervals = INTERVALS,
    ) -> None:
        self._stores = stores
        self._fleet = fleet
        self._config = config
        self._rules = rules
        self._tiers = tiers
        self._intervals = intervals
        self._running: dict[asyncio.Task[None], Batch] = {}
        self._wake = asyncio.Event()
        self._num_refusals = 0

    async def run(self) -> None:
        """Claim batches as they come, for ever."""
        try:
            while True:
                await self._claim_all()
                await wait_at_most(self._wake, self._intervals.poll_s)
                self._wake.clear()
        finally:
            claimed = list(self._running.values())
            tasks = list(self._running)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for batch in claimed:
                await self._release(batch)

    def poke(self) -> None:
        """Look for new batches now."""
        self._wake.set()

    async def _claim_all(self) -> None:
        while len(self._running) < MAX_RUNNING:
            try:
                batch = await self._stores.work.claim(self._config.lease_s, list(self._running.values()))
            except (DBAPIError, OSError) as error:
                self._num_refusals += 1
                if worth_logging(self._num_refusals):
                    kind = type(error).__name__
                    logger.warning("Batches could not be claimed %d times: %s", self._num_refusals, kind)
                return
            except Exception as error:  # It is claimed, and tried again when the claim has run out.
                log_bug("claim", error)
                return
            self._num_refusals = 0
            if batch is None:
                return
            task = asyncio.create_task(self._run(batch))
            self._running[task] = batch
            task.add_done_callback(self._forget)

    async def _release(self, batch: Batch) -> None:
        with suppress(Fenced, DBAPIError, OSError):
            await self._stores.work.release(batch.batch_id, batch.state.epoch)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._wake.set()

    async def _run(self, batch: Batch) -> None:
        try:
            await BatchRun(self._stores, self._fleet, self._config, self._rules, self._tiers, batch).run()
        except Fenced as error:
            logger.info("Another coordinator goes on with %s: %s", batch.batch_id, error)
        except Exception as error:  # The claim runs out, and the batch is tried again.
            log_bug(batch.batch_id, error)
            await asyncio.sleep(_AFTER_BUG_S)
