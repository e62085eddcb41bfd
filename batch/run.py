"""One claimed batch, from wherever it was left to its end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from batch.calls import begin_trace, failed
from batch.config import BatchConfig
from batch.fleet import Fleet, FleetDown
from batch.lines import Place, read_custom_id
from batch.merge import Merged, Without, merge
from batch.stores import Stores, at_once, patiently, when_mounted
from batch.validation import LineIndex, Rules, Validation, index_lines, validate
from batch.worker import Job, must_stop
from deployments.state.batches.ledger import BatchState, CannotCancel, Fenced
from deployments.state.batches.rows import Batch
from deployments.state.files.store import FileNotFound, StoredFile
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.store import ContentLost
from deployments.state.retention import FilesConfig, keeps_input
from serve_app.errors.api import ApiError

logger = logging.getLogger(__name__)

MAX_TRIES = 3
_MAX_VALIDATIONS = 10
_FLEET_WAIT_S = 2.0
_CANCEL_WAIT_S = 30.0
"""How long a batch that is cancelled waits for an input that is lost, of which only the names of lines are needed."""
_INPUT_LOST: dict[str, Any] = {
    "code": "input_file_lost",
    "message": "The input file can no longer be read from storage. What was done before is in the output file.",
    "param": "input_file_id",
    "line": None,
}


class BatchRun:
    """The work on one batch under one claim."""

    def __init__(
        self, stores: Stores, fleet: Fleet, config: BatchConfig, rules: FilesConfig, tiers: Tiers, batch: Batch
    ) -> None:
        self._stores = stores
        self._fleet = fleet
        self._config = config
        self._rules = rules
        self._tiers = tiers
        self._batch = batch
        self._id = batch.batch_id
        self._epoch = batch.state.epoch
        self._claimed_at = stores.work.uptime()

    async def run(self) -> None:
        """Return when the batch has ended.

        Raises:
            Fenced: somebody else works on it now.
        """
        working = asyncio.create_task(self._work())
        holding = asyncio.create_task(self._hold_claim())
        try:
            await asyncio.wait({working, holding}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await holding
            await working
        finally:
            for task in (working, holding):
                task.cancel()
            await asyncio.gather(working, holding, return_exceptions=True)
            await self._fleet.forget(self._id)

    async def _hold_claim(self) -> None:
        while True:
            await asyncio.sleep(self._config.lease_s / 5)
            await patiently("Renewing a claim", self._renew)
            await patiently("Looking at a key", self._cancel_if_revoked)

    async def _renew(self) -> None:
        work = self._stores.work
        elapsed_s = self._batch.state.elapsed_s + work.uptime() - self._claimed_at
        await work.renew(self._id, self._epoch, self._config.lease_s, elapsed_s)

    async def _cancel_if_revoked(self) -> None:
        principal = self._batch.principal
        if await self._stores.work.is_key_revoked(principal.key_id):
            with suppress(CannotCancel):
                await self._stores.batches.cancel(principal.account, self._id)

    async def _work(self) -> None:
        index: LineIndex | None = None
        try:
            index = await self._index()
            if index is None:
                await self._clean_up()
                return
            await self._run_lines(index)
            state = await self._seal()
        except (ContentLost, FileNotFound):
            state = await self._seal_without_input(index)
        if state.finalizing_at is None:
            raise Fenced(f"The batch is {state.status}.")
        await self._finish(state, index)

    async def _seal(self) -> BatchState:
        return await patiently("Sealing a batch", lambda: self._stores.work.seal(self._id, self._epoch))

    async def _seal_without_input(self, index: LineIndex | None) -> BatchState:
        logger.warning("The input of %s is lost.", self._id)
        state = await self._look()
        if state.is_complete or (index is not None and must_stop(state)):  # At most names are needed of it.
            return await self._seal()
        lose = partial(self._stores.work.lose, self._id, self._epoch, [_INPUT_LOST])
        return await patiently("Noting a lost input", lose)

    async def _finish(self, state: BatchState, index: LineIndex | None) -> None:
        batch, stores = self._batch, self._stores
        retention = batch.principal.retention
        merged = await self._merge(state, index)
        keys = await patiently(
            "Ending a batch",
            lambda: stores.work.finish(
                self._id,
                self._epoch,
                merged.output,
                merged.errors,
                num_lost=merged.num_lost,
                drops_input=not keeps_input(retention),
            ),
        )
        await self._drop(keys)

    async def _merge(self, state: BatchState, index: LineIndex | None) -> Merged:
        batch, stores = self._batch, self._stores
        lifetime_s = self._rules.output_lifetime_s(batch.principal.retention, batch.output_expires_after_s)

        async def write(without: Without, lost_after: Callable[[], Awaitable[float]]) -> Merged:
            work = partial(merge, stores, batch, state, index, lifetime_s, without)
            return await patiently("Writing a batch's output", work, lost_after=lost_after)

        try:
            return await write(Without.NOTHING, self._input_lost_after)
        except (ContentLost, FileNotFound):
            logger.warning("What %s needs for its output is lost in part.", self._id)
        try:  # Answers were waited for as long as the input was, but where the batch is cancelled.
            return await write(Without.NAMES, when_mounted if state.status == "cancelling" else at_once)
        except ContentLost:
            return await write(Without.ANSWERS, at_once)

    async def _input_lost_after(self) -> float:
        is_cancelled = (await self._look()).status == "cancelling"
        return _CANCEL_WAIT_S if is_cancelled else await when_mounted()

    async def _clean_up(self) -> None:
        """Destroy what a batch leaves that never ran."""
        drops_input = not keeps_input(self._batch.principal.retention)
        await self._drop(
            await patiently(
                "Ending a batch", lambda: self._stores.work.destroy_leftovers(self._id, drops_input=drops_input)
            )
        )

    async def _drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._stores.files.drop_object(key)

    async def _index(self) -> LineIndex | None:
        """Return where the lines are, validated if they were not yet; None where that was the end of the batch."""
        state = self._batch.state
        if state.status == "cancelling" and not state.num_total:
            return LineIndex()
        if state.num_total:
            return await patiently("Reading a batch's input", self._read_index, lost_after=self._input_lost_after)
        found = await self._validate()
        if not found.errors:
            state = await patiently(
                "Noting a valid batch",
                lambda: self._stores.work.begin(self._id, self._epoch, len(found.index), found.estimated_tokens),
            )
            return found.index
        state = await patiently(
            "Noting an invalid batch", lambda: self._stores.work.fail(self._id, self._epoch, found.errors)
        )
        return LineIndex() if state.status == "cancelling" else None

    async def _read_index(self) -> LineIndex:
        file = await self._input_file()
        return await index_lines(self._stores.files.read(file), self._config.max_line_bytes)

    async def _validate(self) -> Validation:
        config, batch = self._config, self._batch
        if self._epoch > _MAX_VALIDATIONS:  # Whoever tried before did not come back.
            return _invalid("internal_error", "The input file could not be validated. Please contact the operator.")
        rules = Rules(batch.endpoint, config.max_requests, config.max_line_bytes)

        async def read() -> Validation:
            file = await self._input_file()
            if file.expires_at <= batch.state.created_at:
                raise FileNotFound
            if file.purpose != "batch":
                message = f"File {file.file_id} was not uploaded with the purpose 'batch', but '{file.purpose}'."
                return _invalid("invalid_request", message, "file_id")
            return await validate(self._stores.files.read(file), rules)

        try:
            found = await patiently("Reading a batch's input", read, lost_after=self._input_lost_after)
        except FileNotFound:
            return _invalid(
                "invalid_request",
                f"Cannot find file {batch.input_file_id}, or organization {batch.principal.organization} does not have "
                "access to it.",
                "file_id",
            )
        except ContentLost:
            return Validation(errors=[_INPUT_LOST])
        allowance = self._tiers.of(batch.principal.tier).enqueued_tokens
        if allowance is not None and not found.errors:
            enqueued = await patiently("Counting tokens", lambda: self._stores.work.enqueued_tokens(batch.account))
            if enqueued + found.estimated_tokens > allowance:
                return _invalid(
                    "token_limit_exceeded",
                    f"Enqueued token limit reached in organization {batch.principal.organization}. Limit: {allowance} "
                    "enqueued tokens. Please try again once some in_progress batches have been completed.",
                )
        return found

    async def _input_file(self) -> StoredFile:
        return await self._stores.files.find(self._batch.account, self._batch.input_file_id, even_expired=True)

    async def _run_lines(self, index: LineIndex) -> None:
        """Return when every line is done, or no more are to be run.

        Where a worker dies over lines, they are given out once more; then those that may be to blame, which were
        started first, run one by one.
        """
        batch = self._batch
        state = await self._look()
        if state.is_complete or must_stop(state):
            return
        input_file = await patiently("Looking for a batch's input", self._input_file)
        job = Job(self._id, self._epoch, batch.endpoint, batch.principal, input_file)
        num_rounds = 0
        while True:
            state = await self._look()
            missing = state.missing()
            if not missing or must_stop(state):
                return
            if num_rounds:
                await self._read(job, index.places(missing))
            num_rounds += 1
            if num_rounds <= 2:
                await self._give_out(job, index.places(missing))
            else:
                for line in missing[: self._config.max_lines_in_flight]:
                    await self._run_alone(job, index.place(line))
                num_rounds = 0

    async def _run_alone(self, job: Job, place: Place) -> None:
        content = b""
        for _ in range(MAX_TRIES):
            content = await self._read(job, [place])
            await self._patiently_run(job, lambda: self._fleet.run_alone(job, place))
            state = await self._look()
            if state.done >> place.line & 1 or must_stop(state):
                return
        logger.warning("A line of %s ended its worker %d times and is given up.", job.batch_id, MAX_TRIES)
        trace = begin_trace(job.principal, self._id, self._stores.batches.clock())
        answer = failed(place.line, read_custom_id(content), job.endpoint, trace, ApiError())
        segment, sealed = await patiently(
            "Sealing a segment", lambda: self._stores.segments.prepare(job.principal.account, [answer])
        )
        await patiently("Writing a segment", lambda: self._stores.segments.write(segment, sealed))
        await patiently("Committing a segment", lambda: self._stores.work.commit(self._id, self._epoch, segment))

    async def _read(self, job: Job, places: Sequence[Place]) -> bytes:
        """Return the last of these lines, having read them all: what cannot be read is no worker's fault.

        Raises:
            ContentLost: it cannot be read for long, or the batch is to be stopped, and the object store is there.
            FileNotFound: the file is gone.
        """

        async def read() -> bytes:
            reader = await self._stores.files.open(job.input_file)
            content = b""
            for place in places:
                content = await reader.read(place.offset, place.offset + place.length)
            return content

        async def lost_after() -> float:
            return await (at_once if must_stop(await self._look()) else when_mounted)()

        return await patiently("Reading a batch's input", read, lost_after=lost_after)

    async def _give_out(self, job: Job, places: Sequence[Place]) -> None:
        await self._patiently_run(job, lambda: self._fleet.run(job, places))

    async def _patiently_run(self, job: Job, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except FleetDown as error:
                logger.warning("No worker for %s: %s", job.batch_id, error)
                await asyncio.sleep(_FLEET_WAIT_S)
                if must_stop(await self._look()):
                    return
            else:
                return

    async def _look(self) -> BatchState:
        state = await patiently("Looking at a batch", lambda: self._stores.work.look(self._id))
        if state.epoch != self._epoch:
            raise Fenced("Somebody else has claimed the batch.")
        return state


def _invalid(code: str, message: str, param: str | None = None) -> Validation:
    return Validation(errors=[{"code": code, "message": message, "param": param, "line": None}])
