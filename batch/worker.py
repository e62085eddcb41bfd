"""A worker: runs lines of claimed batches in its process and commits their outcomes as they arrive.

A `Fleet` gives it the lines. A committed outcome counts once, even if the worker dies or loses the claim; lines without
one are left for another run.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from batch.calls import Answer, LineCalls
from batch.concurrency import ConcurrencyLimiter
from batch.config import INTERVALS, BatchConfig, Intervals
from batch.stores import MAX_SEGMENT_BYTES, Stores, retried, retry_outages
from deployments.models.price import NO_PRICES, Prices
from deployments.state.batches.ledger import BatchState, Fenced
from deployments.state.batches.rows import Segment
from deployments.state.files.content import ContentReader
from deployments.state.files.store import StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.objects.pair import write_near_only
from deployments.state.objects.store import ContentLost
from deployments.state.usage.record import RequestRecord
from deployments.waiting import end_all, wait_at_most
from serve_app.operations.contract import RunnableOperation
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.tracing import Tracer
from serve_app.validation.batch_lines import Place, parse_line
from serve_app.validation.ignored import NOTHING, Ignored

_MAX_UNWRITTEN_BYTES = 4 * MAX_SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class ClaimedBatch:
    """A claimed batch, for its workers. It travels between processes and holds no content of lines."""

    batch_id: str
    epoch: int
    endpoint: str
    principal: Principal
    input_file: StoredFile


class FleetDown(Exception):
    """No worker can be started now; no line is at fault."""


class Fleet(Protocol):
    """The workers that `BatchRun` gives lines to: `RayFleet`, or one worker in the same process in tests."""

    async def run(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        """Return when the lines have committed outcomes, the batch must stop, or a worker died over them.

        Raises:
            Fenced: another coordinator has claimed the batch.
            FleetDown: no worker could be started.
        """

    async def run_alone(self, batch: ClaimedBatch, place: Place) -> None:
        """Run one line in a process that runs no other, as `run` does: if the process dies, the line is at fault."""

    async def forget(self, batch_id: str) -> None:
        """Stop the workers that ran single lines of a batch."""

    async def close(self) -> None:
        """Stop all workers."""


class LineWorker:
    """Runs lines, for several batches at once: their accounts take turns. A process has one."""

    def __init__(
        self,
        stores: Stores,
        operations: Mapping[str, RunnableOperation[Any]],
        config: BatchConfig,
        count: Callable[[RequestRecord], None] | None = None,
        intervals: Intervals = INTERVALS,
        prices: Prices = NO_PRICES,
        tracer: Tracer | None = None,
        ignored: Ignored = NOTHING,
    ) -> None:
        """Create a worker; `count` is called with the record of each line whose outcome was committed."""
        self.limiter = ConcurrencyLimiter(config.max_lines_in_flight)
        self._stores = stores
        self._count = count
        self._intervals = intervals
        clock = stores.batches.clock
        self._calls = LineCalls(
            operations, self.limiter, config.priority, clock=clock, prices=prices, tracer=tracer, ignored=ignored
        )

    async def run(self, batch: ClaimedBatch, places: Sequence[Place]) -> None:
        """Return when each of the lines has a committed outcome, or when the batch must stop or is paused.

        Raises:
            Fenced: another coordinator has claimed the batch, or its outcomes are sealed.
        """
        if batch.principal.regions is not None:
            write_near_only()
        run = _Run(self._stores, self._intervals, batch, self._count)
        committing = asyncio.create_task(run.commit_until_done())
        starting = asyncio.create_task(self._start_lines(run, places))
        try:
            await asyncio.wait({committing, starting}, return_when=asyncio.FIRST_COMPLETED)
            if committing.done():  # Fenced or stopping: running lines are cancelled, finished lines are kept.
                await committing
                await end_all([starting, *run.running])
                await run.commit_rest()
                return
            await starting
            run.has_started_all = True
            run.wake.set()
            await committing
        finally:
            await end_all([starting, committing, *run.running])

    async def _start_lines(self, run: "_Run", places: Sequence[Place]) -> None:
        batch = run.batch
        if await run.is_stopping():
            return
        reader = await retried(self._stores.files).open(batch.input_file)
        for place in places:
            await run.has_room.wait()
            await self.limiter.acquire(batch.principal.account)
            if run.is_paused:
                self.limiter.release()
                break
            line = asyncio.create_task(self._run_line(run, reader, place))
            run.running.add(line)
            line.add_done_callback(run.running.discard)
        while run.running:
            await asyncio.wait(set(run.running))

    async def _run_line(self, run: "_Run", reader: ContentReader, place: Place) -> None:
        batch = run.batch
        try:
            stop = place.offset + place.length
            content = await retry_outages(
                "Reading a batch's input", lambda: reader.read(place.offset, stop), lost_after_s=0
            )
            request = parse_line(content, batch.endpoint)
            run.add(await self._calls.run(place.line, request, batch.endpoint, batch.principal, batch.batch_id))
        except ContentLost:  # The line stays undone: to wait here would take the place of another line.
            return
        except Exception as error:  # The line stays undone; `BatchRun` gives it out again, a few times.
            log_bug(batch.batch_id, error)
        finally:
            self.limiter.release()


class _Run:
    """The state of one `LineWorker.run`: its running lines, and their answers until they are committed."""

    def __init__(
        self, stores: Stores, intervals: Intervals, batch: ClaimedBatch, count: Callable[[RequestRecord], None] | None
    ) -> None:
        self.batch = batch
        self.running: set[asyncio.Task[None]] = set()
        self.has_started_all = False
        self.is_paused = False
        self.wake = asyncio.Event()
        self.has_room = asyncio.Event()
        self.has_room.set()
        self._stores = stores
        self._work = retried(stores.work)
        self._count = count
        self._interval_s = intervals.commit_s
        self._answers: list[Answer] = []
        self._num_bytes = 0

    def add(self, answer: Answer) -> None:
        """Keep an answer for the next commit. Above a bound of uncommitted bytes no more lines start."""
        self._answers.append(answer)
        self._num_bytes += len(answer.rendered)
        if self._num_bytes >= MAX_SEGMENT_BYTES:
            self.wake.set()
        if self._num_bytes >= _MAX_UNWRITTEN_BYTES:
            self.has_room.clear()

    async def commit_until_done(self) -> None:
        """Commit answers at intervals, until all are committed or the batch must stop.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed.
        """
        while True:
            await wait_at_most(self.wake, self._interval_s)
            self.wake.clear()
            is_last = self.has_started_all
            is_stopping = await self.commit_rest() if self._answers else await self.is_stopping()
            if is_stopping or (is_last and not self._answers):
                return

    async def commit_rest(self) -> bool:
        """Commit the answers so far; return whether the batch must stop.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed.
        """
        answers, self._answers = self._answers, []
        self._num_bytes = 0
        if not answers:
            return False
        segment, state, accepted = await commit_answers(self._stores, self.batch, answers)
        if self._count is not None:
            for outcome, record in zip(segment.outcomes, segment.records, strict=True):
                if outcome.line in accepted:
                    self._count(record)
        if not accepted and segment.outcomes:
            await self._drop_unless_known(segment.object_key)
        self.has_room.set()
        self.is_paused = state.is_paused
        return must_stop(state)

    async def _drop_unless_known(self, object_key: str) -> None:
        known = await self._work.known_segments([object_key])
        if object_key not in known:
            await self._stores.files.drop_object(object_key)

    async def is_stopping(self) -> bool:
        """Look at the batch; return whether it must stop.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed.
        """
        batch = self.batch
        state = await self._work.look(batch.batch_id)
        if state.epoch != batch.epoch or state.finalizing_at is not None or state.has_ended:
            raise Fenced(f"The batch is {state.status}.")
        self.is_paused = state.is_paused
        return must_stop(state)


async def commit_answers(
    stores: Stores, batch: ClaimedBatch, answers: Sequence[Answer]
) -> tuple[Segment, BatchState, set[int]]:
    """Commit answers as one segment; return it, the batch's state, and the lines whose outcomes counted.

    Raises:
        Fenced: the claim is not the newest, or the outcomes are sealed.
    """
    segments = retried(stores.segments)
    segment, sealed = await segments.prepare(batch.principal.account, answers)
    await segments.write(segment, sealed)
    return segment, *await retried(stores.work).commit(batch.batch_id, batch.epoch, segment)


def must_stop(state: BatchState) -> bool:
    """Return whether no more lines of a batch may start: it is being cancelled, or its time is over."""
    return state.status != "in_progress" or state.is_over
