"""Runs responses in the background: the client may leave, and the process may die.

Beside the walk of a foreground answer: it runs the same turn, but stores events in the database in groups, under a
lease, and shows them only then, so that a client reads the same from any replica. The journal is stored with them. When
a runner dies, its lease lapses, and another replica claims the response, replays it from the journal, and goes on.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from deployments.limits.contract import Gatekeeper, Granted
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineError, RequestRejected
from deployments.state.identity.principal import principal_of, principal_to_row
from deployments.state.responses.values import ClaimedResponse, Item, LeaseLost, StoredTurn
from deployments.waiting import wait_at_most
from serve_app.errors.api import SERVER_ERROR_MESSAGE, ApiError
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.resume.journal import EmittedEvents, Journal, JournalMismatch, RetryPolicy
from serve_app.operations.responses.resume.replay import reopen
from serve_app.operations.responses.run.loop import ResponseRun
from serve_app.operations.responses.storage.stores import Storage
from serve_app.schemas.responses.mcp import without_secrets
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.observer import Observer
from serve_app.telemetry.trace import CLIENT_CLOSED_REQUEST, RequestTrace

T = TypeVar("T")
Settle = Callable[[Usage | None], None]

ROUTE = "/v1/responses (background)"
INTERRUPTED = "The response was interrupted and could not be continued. Please retry your request."
NOT_TAKEN_OVER = (
    "The response was interrupted and could not be continued: the headers and the authorization of its MCP servers are "
    "not kept. Please retry your request."
)
_MAX_EPOCHS = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """When what happens, in seconds.

    A runner renews its lease every `heartbeat_s` at least and writes events every `group_s` at most; `claim_s` is how
    often a replica looks for lapsed leases, `follow_s` how often it looks for events of a response that runs elsewhere.
    """

    lease_s: float = 6.0
    heartbeat_s: float = 1.0
    group_s: float = 0.05
    claim_s: float = 1.0
    follow_s: float = 0.1
    retry_s: float = 1.0


@dataclass(slots=True)
class _Job:
    """A response that this process runs, with its events that are not stored yet and the signals between its tasks."""

    run: ResponseRun
    journal: Journal
    epoch: int
    settle: Settle
    trace: RequestTrace
    claimed: ClaimedResponse | None = None
    emitted: EmittedEvents = field(default_factory=EmittedEvents)
    unsaved: list[bytes] = field(default_factory=list)
    has_news: asyncio.Event = field(default_factory=asyncio.Event)
    has_more: asyncio.Event = field(default_factory=asyncio.Event)
    is_leaving: asyncio.Event = field(default_factory=asyncio.Event)
    has_ended: bool = False

    def add(self, events: list[bytes]) -> None:
        self.unsaved += self.emitted.leave_out(events)
        self.has_news.set()

    def notify_followers(self) -> None:
        """Wake those who follow: there are more events, or the response has ended."""
        has_more, self.has_more = self.has_more, asyncio.Event()
        has_more.set()


class BackgroundRunner:
    """The background responses that run in this process, and those of others that it may take over."""

    def __init__(
        self,
        operation: ResponseOperation,
        storage: Storage,
        gatekeeper: Gatekeeper,
        observer: Observer,
        timing: Timing | None = None,
    ) -> None:
        self._operation = operation
        self._store = storage.background
        self._responses = storage.responses
        self._gatekeeper = gatekeeper
        self._observer = observer
        self._timing = timing or Timing()
        self._retries = RetryPolicy(wait_s=self._timing.retry_s)
        self._jobs: dict[str, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, turn: Turn, raw: bytes, settle: Settle, trace: RequestTrace) -> Item:
        """Keep a response that begins, and run it; return the object.

        `settle` gets its usage when it ends. The request's trace goes on: it is recorded when the response ends.
        """
        assert turn.expires_at is not None
        journal = Journal(is_kept=True)
        run = self._operation.start_journaled(turn, journal, self._retries)
        events = run.state.begin(queued=True)
        begun: Item = orjson.loads(orjson.dumps(run.state.response))
        body, lacks_secrets = without_secrets(orjson.loads(raw))
        job: Item = {"body": body, "principal": principal_to_row(turn.principal), "request": turn.request_id}
        if lacks_secrets:
            job["runs_here_only"] = True
        epoch = await self._store.start(
            turn.principal.account,
            run.stored_turn(),
            job,
            events=events,
            expires_at=turn.expires_at,
            lease_s=self._timing.lease_s,
        )
        trace.goes_on = True
        self._launch(_Job(run, journal, epoch, settle, trace))
        return begun

    def watch(self) -> None:
        """Look for responses whose runner is gone, from now on."""
        self._keep_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._timing.claim_s)
            try:
                while (claimed := await self._store.claim(self._timing.lease_s)) is not None:
                    await self._take_over(claimed)
            except Exception as error:
                log_bug("background", error)

    async def _take_over(self, claimed: ClaimedResponse) -> None:
        principal = principal_of(claimed.job["principal"])
        request = ResponseRequest.model_validate(claimed.job["body"])
        request_id = f"{claimed.job['request']}-e{claimed.epoch}"
        raw = orjson.dumps(claimed.job["body"])
        journal, emitted = Journal(claimed.journal, is_kept=True), EmittedEvents(claimed.events)
        try:
            if claimed.job.get("runs_here_only"):
                raise ApiError(NOT_TAKEN_OVER)
            is_lost = emitted.has_items and not claimed.journal  # It was begun by a version that kept none.
            if claimed.is_cancelled or is_lost or claimed.epoch > _MAX_EPOCHS:
                raise ApiError(INTERRUPTED)
            turn = await self._operation.resume(request, raw, principal, claimed.turn, journal, request_id=request_id)
        except ApiError as error:
            await self._give_up(claimed, error)
            return

        def settle(usage: Usage | None) -> None:
            if usage is not None:  # Nothing is reserved: that was lost with the process which began it.
                used = usage.total_tokens
                self._gatekeeper.settle(principal, granted=Granted(time.time()), reserved=0, used=used)

        trace = RequestTrace(request_id, "POST", time.time(), time.perf_counter(), principal=principal)
        trace.model = turn.response["model"]
        self._observer.begin()
        run = self._operation.start_journaled(turn, journal, self._retries, emitted)
        job = _Job(run, journal, claimed.epoch, settle, trace, claimed, emitted)
        job.add(run.state.begin(queued=True))
        self._launch(job)

    async def _give_up(self, claimed: ClaimedResponse, error: ApiError) -> None:
        """End a response that is not run any more."""
        state = reopen(claimed.turn.response, claimed.events)
        events = state.cancel() if claimed.is_cancelled else state.fail("server_error", error.message)
        turn = StoredTurn(state.response, claimed.turn.input, {}, state.cuts)
        await self._store.finish(claimed.account, turn, claimed.epoch, events)

    def _launch(self, job: _Job) -> None:
        self._jobs[job.run.turn.response["id"]] = job
        self._keep_task(self._guard(job))

    def _keep_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guard(self, job: _Job) -> None:
        """Do a job; whatever ends it, its tokens are counted and it is written into the log."""
        turn, trace = job.run.turn, job.trace
        is_handed_over = False
        try:
            await self._do(job)
            trace.status, trace.code = _status_of(job.run.state.response)
        except LeaseLost:  # It was deleted, or another replica runs it.
            trace.status, trace.code = CLIENT_CLOSED_REQUEST, "lease_lost"
        except asyncio.CancelledError:
            trace.status, trace.code = CLIENT_CLOSED_REQUEST, "shutdown"
            is_handed_over = True  # The replica that goes on with it counts all of it.
            with suppress(Exception):
                await self._store.release(turn.response["id"], job.epoch)
            raise
        except Exception as error:
            trace.status = 500
            log_bug(turn.request_id, error)
        finally:
            self._jobs.pop(turn.response["id"], None)
            job.notify_followers()
            trace.usage = None if is_handed_over else job.run.usage()
            job.settle(trace.usage)
            self._observer.end(trace, route=ROUTE, ended=time.perf_counter())

    async def _do(self, job: _Job) -> None:
        making = asyncio.create_task(self._make(job))
        making.add_done_callback(lambda _: job.has_news.set())
        keeping = asyncio.create_task(self._keep(job, making))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            # Everything made is stored before another replica goes on, so that it repeats no call.
            job.is_leaving.set()
            job.has_news.set()
            await asyncio.wait([keeping], timeout=self._timing.lease_s)
            if job.has_ended:
                return
            raise
        finally:
            making.cancel()
            keeping.cancel()
            await asyncio.wait([making, keeping])

    async def _make(self, job: _Job) -> None:
        """Have the response made; its events go into `job.unsaved`."""
        job.add(job.run.state.progress())
        try:
            async with aclosing(job.run.events([])) as batches:
                async for batch in batches:
                    if job.trace.first_piece_at is None:
                        job.trace.first_piece_at = time.perf_counter()
                    job.add(batch)
        except (EngineError, ApiError) as error:
            is_prompts_fault = isinstance(error, RequestRejected)
            refusal = translate_engine_error(error) if isinstance(error, EngineError) else error
            job.add(job.run.state.fail("invalid_prompt" if is_prompts_fault else "server_error", refusal.message))

    async def _keep(self, job: _Job, making: asyncio.Task[None]) -> None:
        """Write what is made into the database, until it has ended, was cancelled or goes on elsewhere."""
        account, response_id = job.run.turn.principal.account, job.run.turn.response["id"]
        is_cancelled = False
        while not making.done():
            await wait_at_most(job.has_news, self._timing.heartbeat_s)
            job.has_news.clear()
            if making.done():
                break
            is_last, events, job.unsaved = job.is_leaving.is_set(), job.unsaved, []
            journal = job.journal.take_written() if events else []
            is_cancelled = await self._persist(
                lambda events=events, journal=journal: self._store.append(  # type: ignore[misc]
                    account,
                    response_id,
                    job.epoch,
                    events,
                    journal=journal,
                    status="in_progress",
                    lease_s=self._timing.lease_s,
                )
            )
            job.journal.note_kept(len(journal))
            job.notify_followers()
            if is_cancelled:
                making.cancel()
                await asyncio.wait([making])
            elif is_last:
                return
            else:
                await wait_at_most(job.is_leaving, self._timing.group_s)
        failure = None if making.cancelled() else making.exception()
        if isinstance(failure, JournalMismatch) and job.claimed is not None:
            await self._give_up(job.claimed, ApiError(INTERRUPTED))
            job.has_ended = True
            return
        if failure is not None:
            log_bug(job.run.turn.request_id, failure)
            job.unsaved += job.run.state.fail("server_error", SERVER_ERROR_MESSAGE)
        job.unsaved += job.run.state.cancel()  # Nothing, unless it was cancelled.
        await self._persist(
            lambda: self._store.finish(
                account, job.run.stored_turn(), job.epoch, job.unsaved, conversation_id=job.run.turn.conversation_id
            )
        )
        job.has_ended = True

    async def _persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Return what a write returns; it is retried while the database is away, for as long as the lease lasts."""
        deadline = time.monotonic() + self._timing.lease_s
        while True:
            try:
                return await write()
            except LeaseLost:
                raise
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(self._timing.heartbeat_s / 2)

    async def cancel(self, account: str, response_id: str) -> bool:
        """Have a response cancelled, wherever it runs, and wait a while for it; return whether it was running."""
        if not await self._store.cancel(account, response_id):
            return False
        job = self._jobs.get(response_id)
        if job is not None:
            job.has_news.set()
        deadline = time.monotonic() + self._timing.lease_s
        while time.monotonic() < deadline:
            turn = await self._responses.load(account, response_id)
            if turn is None or turn.response["status"] not in ("queued", "in_progress"):
                break
            await asyncio.sleep(self._timing.follow_s / 2)
        return True

    async def count_events(self, account: str, response_id: str) -> int:
        """Return how many events of a background response can be read now."""
        followed = await self._store.follow(account, response_id, -1)
        return len(followed.events) if followed is not None else 0

    async def follow(self, account: str, response_id: str, after: int) -> AsyncGenerator[bytes]:
        """Yield the events numbered above `after` as they are kept, until the response has ended or is gone."""
        while True:
            job = self._jobs.get(response_id)
            has_more = job.has_more if job is not None else None
            followed = await self._store.follow(account, response_id, after)
            if followed is None:
                return
            for event in followed.events:
                yield event
            after += len(followed.events)
            if not followed.is_running:
                return
            if has_more is None:
                await asyncio.sleep(self._timing.follow_s)
                continue
            await wait_at_most(has_more, self._timing.heartbeat_s)

    async def close(self) -> None:
        """Stop what runs here; other replicas take it over."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _status_of(response: Item) -> tuple[int, str | None]:
    """Return the status and the code under which the end of a response is recorded."""
    match response["status"]:
        case "failed":
            code: str = response["error"]["code"]
            return 400 if code == "invalid_prompt" else 500, code
        case "cancelled":
            return CLIENT_CLOSED_REQUEST, "cancelled"
    return 200, None
