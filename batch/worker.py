"""A worker: runs lines of claimed batches in its process, and commits their outcomes as they come."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batch.calls import Answer, LineCalls
from batch.config import INTERVALS, BatchConfig, Intervals
from batch.gate import Gate
from batch.lines import Place, parse_line
from batch.segments import MAX_SEGMENT_BYTES
from batch.stores import Stores, at_once, patiently
from deployments.state.batches.ledger import BatchState, Fenced
from deployments.state.files.content import ContentReader
from deployments.state.files.store import StoredFile
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import ContentLost
from deployments.state.usage.record import RequestRecord
from deployments.waiting import wait_at_most
from serve_app.operations.registry import RunnableOperation
from serve_app.telemetry.log import log_bug

_MAX_UNWRITTEN_BYTES = 4 * MAX_SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed batch, as a worker must know it. It holds nothing of what lines say, and travels between processes."""

    batch_id: str
    epoch: int
    endpoint: str
    principal: Principal
    input_file: StoredFile


class LineWorker:
    """Runs lines. One for each process; several batches may use it at once and share its room in turns."""

    def __init__(
        self,
        stores: Stores,
        operations: Mapping[str, RunnableOperation[Any]],
        config: BatchConfig,
        count: Callable[[RequestRecord], None] | None = None,
        intervals: Intervals = INTERVALS,
    ) -> None:
        """Take what lines need; `count` measures each line whose outcome has been committed."""
        self.gate = Gate(config.max_lines_in_flight)
        self._stores = stores
        self._count = count
        self._intervals = intervals
        self._calls = LineCalls(operations, self.gate, config.priority, clock=stores.batches.clock)

    async def run(self, job: Job, places: Sequence[Place]) -> None:
        """Return when each of the lines has a committed outcome, or when the batch is to be stopped.

        Raises:
            Fenced: somebody else works on the batch now, or its outcomes are sealed.
        """
        run = _Run(self._stores, self._intervals, job, self._count)
        committing = asyncio.create_task(run.commit_until_done())
        starting = asyncio.create_task(self._start_lines(run, places))
        try:
            await asyncio.wait({committing, starting}, return_when=asyncio.FIRST_COMPLETED)
            if committing.done():  # Fenced, or told to stop: what is under way is given up, what is done is kept.
                await committing
                await _cancel([starting, *run.running])
                await run.commit_rest()
                return
            await starting
            run.has_started_all = True
            run.wake.set()
            await committing
        finally:
            await _cancel([starting, committing, *run.running])

    async def _start_lines(self, run: "_Run", places: Sequence[Place]) -> None:
        job = run.job
        reader = await patiently("Reading a batch's input", lambda: self._stores.files.open(job.input_file))
        for place in places:
            await run.room.wait()
            await self.gate.enter(job.principal.account)
            line = asyncio.create_task(self._run_line(run, reader, place))
            run.running.add(line)
            line.add_done_callback(run.running.discard)
        while run.running:
            await asyncio.wait(set(run.running))

    async def _run_line(self, run: "_Run", reader: ContentReader, place: Place) -> None:
        job = run.job
        try:
            stop = place.offset + place.length
            content = await patiently(
                "Reading a batch's input", lambda: reader.read(place.offset, stop), lost_after=at_once
            )
            request = parse_line(content, job.endpoint)
            run.add(await self._calls.run(place.line, request, job.endpoint, job.principal, job.batch_id))
        except ContentLost:  # The line stays undone, and keeps nobody from the models while it is waited for.
            return
        except Exception as error:  # The line stays undone; whoever gave it out tries again, and not for ever.
            log_bug(job.batch_id, error)
        finally:
            self.gate.leave()


class _Run:
    """One call of `LineWorker.run`: its lines under way, and their answers until they are committed."""

    def __init__(
        self, stores: Stores, intervals: Intervals, job: Job, count: Callable[[RequestRecord], None] | None
    ) -> None:
        self.job = job
        self.running: set[asyncio.Task[None]] = set()
        self.has_started_all = False
        self.wake = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self._stores = stores
        self._count = count
        self._interval_s = intervals.commit_s
        self._answers: list[Answer] = []
        self._num_bytes = 0

    def add(self, answer: Answer) -> None:
        """Take an answer in; where too much waits to be written, no more lines are started until it is."""
        self._answers.append(answer)
        self._num_bytes += len(answer.rendered)
        if self._num_bytes >= MAX_SEGMENT_BYTES:
            self.wake.set()
        if self._num_bytes >= _MAX_UNWRITTEN_BYTES:
            self.room.clear()

    async def commit_until_done(self) -> None:
        """Commit what has come, again and again, until all is committed or the batch is to be stopped.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed.
        """
        while True:
            await wait_at_most(self.wake, self._interval_s)
            self.wake.clear()
            is_last = self.has_started_all
            is_stopping = await self.commit_rest() if self._answers else await self._is_stopping()
            if is_stopping or (is_last and not self._answers):
                return

    async def commit_rest(self) -> bool:
        """Commit what has come; return whether the batch is to be stopped.

        Raises:
            Fenced: the claim is not the newest, or the outcomes are sealed.
        """
        answers, self._answers = self._answers, []
        self._num_bytes = 0
        if not answers:
            return False
        stores, job = self._stores, self.job
        account = job.principal.account
        segment, sealed = await patiently("Sealing a segment", lambda: stores.segments.prepare(account, answers))
        await patiently("Writing a segment", lambda: stores.segments.write(segment, sealed))
        state, accepted = await patiently(
            "Committing a segment", lambda: stores.work.commit(job.batch_id, job.epoch, segment)
        )
        if self._count is not None:
            for outcome, record in zip(segment.outcomes, segment.records, strict=True):
                if outcome.line in accepted:
                    self._count(record)
        if not accepted and segment.outcomes:
            await self._drop_unless_known(segment.object_key)
        self.room.set()
        return must_stop(state)

    async def _drop_unless_known(self, object_key: str) -> None:
        known = await patiently("Looking for a segment", lambda: self._stores.work.known_segments([object_key]))
        if object_key not in known:
            await self._stores.files.drop_object(object_key)

    async def _is_stopping(self) -> bool:
        job = self.job
        state = await patiently("Looking at a batch", lambda: self._stores.work.look(job.batch_id))
        if state.epoch != job.epoch or state.finalizing_at is not None or state.has_ended:
            raise Fenced(f"The batch is {state.status}.")
        return must_stop(state)


def must_stop(state: BatchState) -> bool:
    """Say whether no more lines of a batch are to be run: it is being cancelled, or its time is over."""
    return state.status != "in_progress" or state.is_over


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
