"""Runs one claimed batch to its end, from the state in which an earlier claim left it.

`Coordinator` creates a run for each batch that it claims. The run holds the claim, has the fleet run the lines, and
merges their outcomes into the batch's files. Each step is safe to repeat under a later claim.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from batch.calls import begin_trace, failed
from batch.config import BatchConfig
from batch.input import INPUT_LOST, BatchInput
from batch.lines import read_custom_id
from batch.merge import AcceptedLoss, Merged, merge
from batch.stores import LostAfter, Stores, retried, retry_outages
from batch.worker import ClaimedBatch, Fleet, FleetDown, commit_answers, must_stop
from deployments.state.batches.ledger import BatchState, CannotCancel, Fenced
from deployments.state.batches.rows import Batch
from deployments.state.config import FilesConfig, input_kept_s
from deployments.state.files.store import FileNotFound
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.store import ContentLost
from deployments.waiting import end_all
from serve_app.errors.api import ApiError
from serve_app.telemetry.tracing import Tracer
from serve_app.validation.batch_lines import LineIndex, Place

logger = logging.getLogger(__name__)

MAX_TRIES = 3
_FLEET_WAIT_S = 2.0


@dataclass(frozen=True)
class RunContext:
    """The parts that a coordinator's runs share."""

    stores: Stores
    fleet: Fleet
    config: BatchConfig
    files: FilesConfig
    tiers: Tiers
    tracer: Tracer | None = None


class Paused(Exception):
    """An operator has paused the batch."""


class BatchRun:
    """The work on one batch under one claim."""

    def __init__(self, context: RunContext, batch: Batch) -> None:
        self._context = context
        self._stores = context.stores
        self._fleet = context.fleet
        self._batch = batch
        self._id = batch.batch_id
        self._epoch = batch.state.epoch
        self._work = retried(context.stores.work)
        self._claimed_at = self._work.uptime()
        self._input = BatchInput(self._stores, context.config, context.tiers, batch, self._load_state)

    async def run(self) -> None:
        """Return when the batch has ended.

        Raises:
            Fenced: another coordinator has claimed the batch.
            Paused: an operator has paused it; no line runs any more.
        """
        working = asyncio.create_task(self._run())
        holding = asyncio.create_task(self._hold_claim())
        try:
            await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await holding
            await working
        finally:
            await end_all((working, holding))
            await self._fleet.forget(self._id)

    async def _hold_claim(self) -> None:
        while True:
            await asyncio.sleep(self._context.config.lease_s / 5)
            await retry_outages("Renewing a claim", self._renew)

    async def _renew(self) -> None:
        work, principal = self._stores.work, self._batch.principal
        elapsed_s = self._batch.state.elapsed_s + work.uptime() - self._claimed_at
        await work.renew(self._id, self._epoch, self._context.config.lease_s, elapsed_s)
        if await work.is_key_revoked(principal.key_id):
            with suppress(CannotCancel):
                await self._stores.batches.cancel(principal.account, self._id)

    async def _run(self) -> None:
        index: LineIndex | None = None
        try:
            index = await self._input.index()
            if index is None:
                await self._clean_up()
                return
            await self._run_lines(index)
            state = await self._work.seal(self._id, self._epoch)
        except (ContentLost, FileNotFound):
            state = await self._seal_without_input(index)
        if state.finalizing_at is None:
            raise Fenced(f"The batch is {state.status}.")
        await self._finish(state, index)

    async def _seal_without_input(self, index: LineIndex | None) -> BatchState:
        logger.warning("The input of %s is lost.", self._id)
        state = await self._load_state()
        if state.is_complete or (index is not None and must_stop(state)):  # Then only the merge may need the input.
            return await self._work.seal(self._id, self._epoch)
        return await self._work.lose(self._id, self._epoch, [INPUT_LOST])

    async def _finish(self, state: BatchState, index: LineIndex | None) -> None:
        merged = await self._merge(state, index)
        dropped = await self._work.finish(
            self._id,
            self._epoch,
            merged.output,
            merged.errors,
            num_lost=merged.num_lost,
            input_kept_s=input_kept_s(self._batch.principal.retention),
        )
        await self._drop(dropped)
        if self._context.tracer is not None:
            counts = (state.num_completed, state.num_failed)
            now = self._stores.batches.clock()
            self._context.tracer.end_batch(self._id, self._batch.endpoint, state.created_at, now, counts)

    async def _merge(self, state: BatchState, index: LineIndex | None) -> Merged:
        batch, stores = self._batch, self._stores
        lifetime_s = self._context.files.output_lifetime_s(batch.principal.retention, batch.output_expires_after_s)

        async def write(accepted: AcceptedLoss, lost_after_s: LostAfter) -> Merged:
            work = partial(merge, stores, batch, state, index, lifetime_s, accepted)
            return await retry_outages("Writing a batch's output", work, lost_after_s=lost_after_s)

        try:
            return await write(AcceptedLoss.NONE, self._input.lost_after_s)
        except (ContentLost, FileNotFound):
            logger.warning("Some content for the output of %s is lost.", self._id)
        try:  # The first try waited for answers as well, but not as long in a cancelled batch.
            return await write(AcceptedLoss.CUSTOM_IDS, None if state.status == "cancelling" else 0)
        except ContentLost:
            return await write(AcceptedLoss.ANSWERS, 0)

    async def _clean_up(self) -> None:
        """Delete the objects of a batch that never ran."""
        kept_s = input_kept_s(self._batch.principal.retention)
        await self._drop(await self._work.destroy_leftovers(self._id, input_kept_s=kept_s))

    async def _drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._stores.files.drop_object(key)

    async def _run_lines(self, index: LineIndex) -> None:
        """Return when every line is done, or no more may start.

        Lines left undone by a worker that died are given out once more. If it dies again, the lines that started
        first run one by one, since one of them must be at fault.
        """
        batch = self._batch
        state = await self._load_state()
        if state.is_complete or must_stop(state):
            return
        input_file = await self._input.file()
        claimed = ClaimedBatch(self._id, self._epoch, batch.endpoint, batch.principal, input_file)
        num_rounds = 0
        while True:
            state = await self._load_state()
            missing = state.missing()
            if not missing or must_stop(state):
                return
            if state.is_paused:
                raise Paused
            places = index.places(missing)
            if num_rounds:
                await self._input.read(input_file, places)
            num_rounds += 1
            if num_rounds <= 2:
                await self._retry_fleet(partial(self._fleet.run, claimed, places))
            else:
                for place in places[: self._context.config.max_lines_in_flight]:
                    await self._run_alone(claimed, place)
                num_rounds = 0

    async def _run_alone(self, claimed: ClaimedBatch, place: Place) -> None:
        content = b""
        for _ in range(MAX_TRIES):
            content = await self._input.read(claimed.input_file, [place])
            await self._retry_fleet(partial(self._fleet.run_alone, claimed, place))
            state = await self._load_state()
            if state.done >> place.line & 1 or must_stop(state) or state.is_paused:
                return
        logger.warning("A line of %s ended its worker %d times; it fails.", self._id, MAX_TRIES)
        trace = begin_trace(claimed.principal, self._id, place.line, self._stores.batches.clock())
        answer = failed(place.line, read_custom_id(content), claimed.endpoint, trace, ApiError())
        await commit_answers(self._stores, claimed, [answer])

    async def _retry_fleet(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await work()
            except FleetDown as error:
                logger.warning("No worker for %s: %s", self._id, error)
                await asyncio.sleep(_FLEET_WAIT_S)
                state = await self._load_state()
                if must_stop(state) or state.is_paused:
                    return None

    async def _load_state(self) -> BatchState:
        state = await self._work.look(self._id)
        if state.epoch != self._epoch:
            raise Fenced("Another coordinator has claimed the batch.")
        return state
