"""One background response while it runs: its events and journal are stored in groups, under a lease."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineError, RequestRejected
from deployments.state.responses.background import BackgroundStore
from deployments.state.responses.values import ClaimedResponse, LeaseLost, StoredTurn
from deployments.waiting import wait_at_most
from serve_app.errors.api import SERVER_ERROR_MESSAGE, ApiError
from serve_app.errors.translate import translate_engine_error
from serve_app.operations.responses.journal import EmittedEvents, Journal, JournalMismatch
from serve_app.operations.responses.replay import reopen
from serve_app.operations.responses.run.loop import ResponseRun
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.trace import RequestTrace

T = TypeVar("T")

INTERRUPTED = "The response was interrupted and could not be continued. Please retry your request."


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals in seconds.

    A runner renews its lease at least every `heartbeat_s`, and writes events at most every `group_s`. A replica looks
    for lapsed leases every `claim_s`, and for events of a response that runs elsewhere every `follow_s`.
    """

    lease_s: float = 6.0
    heartbeat_s: float = 1.0
    group_s: float = 0.05
    claim_s: float = 1.0
    follow_s: float = 0.1
    retry_s: float = 1.0


@dataclass(slots=True)
class RunningResponse:
    """A background response that this process runs.

    `settle` gets its usage when it ends. `claimed` is set if another process began it. `has_more` is set when more
    events are stored, or no others will follow.
    """

    run: ResponseRun
    journal: Journal
    epoch: int
    settle: Callable[[Usage | None], None]
    trace: RequestTrace
    store: BackgroundStore
    timing: Timing
    claimed: ClaimedResponse | None = None
    emitted: EmittedEvents = field(default_factory=EmittedEvents)
    has_more: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _unsaved: list[bytes] = field(default_factory=list, init=False)
    _has_news: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_leaving: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _has_ended: bool = field(default=False, init=False)

    def add(self, events: list[bytes]) -> None:
        """Take new events, to be stored."""
        self._unsaved += self.emitted.leave_out(events)
        self._has_news.set()

    def look_now(self) -> None:
        """Look into the database now: the response may have been cancelled."""
        self._has_news.set()

    def notify_followers(self) -> None:
        """Wake the followers: there are more events, or the response has ended."""
        has_more, self.has_more = self.has_more, asyncio.Event()
        has_more.set()

    async def run_to_end(self) -> None:
        """Run the response to its end; when this is cancelled, store its events so far.

        Raises:
            LeaseLost: the response was deleted, or another replica runs it.
        """
        producing = asyncio.create_task(self._produce())
        producing.add_done_callback(lambda _: self._has_news.set())
        keeping = asyncio.create_task(self._keep(producing))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            # All events are stored before another replica continues, so that it repeats no call.
            self._is_leaving.set()
            self._has_news.set()
            await asyncio.wait([keeping], timeout=self.timing.lease_s)
            if self._has_ended:
                return
            raise
        finally:
            producing.cancel()
            keeping.cancel()
            await asyncio.wait([producing, keeping])

    async def _produce(self) -> None:
        """Run the turn; its events wait in `_unsaved`."""
        self.add(self.run.state.progress())
        try:
            async with aclosing(self.run.events([])) as batches:
                async for batch in batches:
                    if self.trace.first_piece_at is None:
                        self.trace.first_piece_at = time.perf_counter()
                    self.add(batch)
        except (EngineError, ApiError) as error:
            is_prompts_fault = isinstance(error, RequestRejected)
            refusal = translate_engine_error(error) if isinstance(error, EngineError) else error
            self.add(self.run.state.fail("invalid_prompt" if is_prompts_fault else "server_error", refusal.message))

    async def _keep(self, producing: asyncio.Task[None]) -> None:
        """Store the events until the response has ended, was cancelled or continues elsewhere."""
        while not producing.done():
            await wait_at_most(self._has_news, self.timing.heartbeat_s)
            self._has_news.clear()
            if producing.done():
                break
            is_last = self._is_leaving.is_set()
            if await self._append():
                producing.cancel()
                await asyncio.wait([producing])
            elif is_last:
                return
            else:
                await wait_at_most(self._is_leaving, self.timing.group_s)
        failure = None if producing.cancelled() else producing.exception()
        if isinstance(failure, JournalMismatch) and self.claimed is not None:
            await give_up(self.store, self.claimed, INTERRUPTED)
        else:
            await self._finish(failure)
        self._has_ended = True

    async def _append(self) -> bool:
        """Store the events so far and renew the lease; return whether the response was cancelled."""
        turn = self.run.turn
        events, self._unsaved = self._unsaved, []
        journal = self.journal.take_written() if events else []
        is_cancelled = await self._persist(
            lambda: self.store.append(
                turn.principal.account,
                turn.response["id"],
                self.epoch,
                events,
                journal=journal,
                status="in_progress",
                lease_s=self.timing.lease_s,
            )
        )
        self.journal.note_kept(len(journal))
        self.notify_followers()
        return is_cancelled

    async def _finish(self, failure: BaseException | None) -> None:
        """Store the ended response with its last events."""
        turn = self.run.turn
        if failure is not None:
            log_bug(turn.request_id, failure)
            self._unsaved += self.run.state.fail("server_error", SERVER_ERROR_MESSAGE)
        self._unsaved += self.run.cancel()  # Nothing, unless it was cancelled.
        await self._persist(
            lambda: self.store.finish(
                turn.principal.account,
                self.run.stored_turn(),
                self.epoch,
                self._unsaved,
                conversation_id=turn.conversation_id,
            )
        )

    async def _persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a write, which is retried while the database is away, until the lease lapses."""
        deadline = time.monotonic() + self.timing.lease_s
        while True:
            try:
                return await write()
            except LeaseLost:
                raise
            except Exception:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(self.timing.heartbeat_s / 2)


async def give_up(store: BackgroundStore, claimed: ClaimedResponse, message: str) -> None:
    """End a response that cannot continue, as cancelled if it was, else as failed with a message."""
    state = reopen(claimed.turn.response, claimed.events)
    events = state.cancel() if claimed.is_cancelled else state.fail("server_error", message)
    turn = StoredTurn(state.response, claimed.turn.input, {}, state.cuts)
    await store.finish(claimed.account, turn, claimed.epoch, events)
