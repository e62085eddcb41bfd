"""Starts background responses, takes over those of replicas that died, and shows their events to clients."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

import orjson

from deployments.limits.contract import Gatekeeper, Granted
from deployments.models.contract.engine import Usage
from deployments.state.identity.principal import principal_of, principal_to_row
from deployments.state.identity.tiers import weighted
from deployments.state.responses.values import ClaimedResponse, Item, LeaseLost
from deployments.state.usage.record import CLIENT_CLOSED_REQUEST
from deployments.waiting import wait_at_most
from serve_app.errors.api import ApiError
from serve_app.operations.responses.background.running import INTERRUPTED, RunningResponse, Timing, give_up
from serve_app.operations.responses.journal import EmittedEvents, Journal, RetryPolicy
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.storage import Storage
from serve_app.schemas.responses.mcp import without_secrets
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.trace import Observer, RequestTrace
from serve_app.validation.body import Sent

ROUTE = "/v1/responses (background)"
NOT_TAKEN_OVER = (
    "The response was interrupted and could not be continued: the headers and the authorization of its MCP servers are "
    "not kept. Please retry your request."
)
_MAX_EPOCHS = 5


class BackgroundRunner:
    """The background responses of this process, and those of others that it takes over."""

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
        self._running: dict[str, RunningResponse] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, turn: Turn, raw: bytes, settle: Callable[[Usage | None], None], trace: RequestTrace) -> Item:
        """Store a new response, and run it; return the object.

        When it ends, `settle` gets its usage, and the request's trace is logged. A response that is stored already is
        not run: the front has repeated its request.
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
        if trace.token_weight != 1.0:
            job["token_weight"] = trace.token_weight
        epoch = await self._store.start(
            turn.principal.account,
            run.stored_turn(),
            job,
            key_id=turn.principal.key_id,
            events=events,
            expires_at=turn.expires_at,
            lease_s=self._timing.lease_s,
        )
        if epoch is None:
            await turn.tools.close()
            settle(None)
            trace.is_repeated = True
            stored = await self._responses.load(turn.principal.account, turn.response["id"])
            return stored.response if stored is not None else begun
        trace.goes_on = True
        self._launch(RunningResponse(run, journal, epoch, settle, trace, self._store, self._timing))
        return begun

    def watch(self) -> None:
        """Start to look for responses whose runner is gone."""
        self._begin(self._watch())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._timing.claim_s)
            try:
                while (claimed := await self._store.claim(self._timing.lease_s)) is not None:
                    await self._take_over(claimed)
            except Exception as error:
                log_bug("background", error)

    async def _take_over(self, claimed: ClaimedResponse) -> None:
        """Continue a response whose runner is gone, or end it if that is not possible."""
        principal = principal_of(claimed.job["principal"])
        request = ResponseRequest.model_validate(claimed.job["body"])
        request_id = f"{claimed.job['request']}-e{claimed.epoch}"
        sent = Sent(orjson.dumps(claimed.job["body"]), claimed.job["body"])
        journal, emitted = Journal(claimed.journal, is_kept=True), EmittedEvents(claimed.events)
        try:
            if claimed.job.get("runs_here_only"):
                raise ApiError(NOT_TAKEN_OVER)
            is_lost = emitted.has_items and not claimed.journal  # A version without journals began it.
            if claimed.is_cancelled or is_lost or claimed.epoch > _MAX_EPOCHS:
                raise ApiError(INTERRUPTED)
            turn = await self._operation.preparation.resume(
                request, sent, principal, claimed.turn, calls=journal.calls(), request_id=request_id
            )
        except ApiError as error:
            await give_up(self._store, claimed, error.message)
            return

        token_weight: float = claimed.job.get("token_weight", 1.0)

        def settle(usage: Usage | None) -> None:
            if usage is not None:  # The reservation was lost with the first process.
                used = weighted(usage.total_tokens, token_weight)
                self._gatekeeper.settle(principal, granted=Granted(time.time()), reserved=0, used=used)

        trace = RequestTrace(request_id, "POST", time.time(), time.perf_counter(), principal=principal)
        trace.model = turn.response["model"]
        trace.service_tier, trace.token_weight = turn.service_tier, token_weight
        self._observer.begin()
        run = self._operation.start_journaled(turn, journal, self._retries, emitted)
        running = RunningResponse(
            run, journal, claimed.epoch, settle, trace, self._store, self._timing, claimed, emitted
        )
        running.add(run.state.begin(queued=True))
        self._launch(running)

    def _launch(self, running: RunningResponse) -> None:
        self._running[running.run.turn.response["id"]] = running
        self._begin(self._run(running))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, running: RunningResponse) -> None:
        """Run a response to its end, and log it, however it ends.

        The replica that ends it counts all of its tokens.
        """
        turn, trace = running.run.turn, running.trace
        is_handed_over = False
        try:
            await running.run_to_end()
            trace.status, trace.code = _status_of(running.run.state.response)
        except LeaseLost:  # It was deleted, or another replica runs it.
            trace.status, trace.code = CLIENT_CLOSED_REQUEST, "lease_lost"
            is_handed_over = await self._is_stored(turn)
        except asyncio.CancelledError:
            trace.status, trace.code = CLIENT_CLOSED_REQUEST, "shutdown"
            is_handed_over = True
            with suppress(Exception):
                await self._store.release(turn.response["id"], running.epoch)
            raise
        except Exception as error:
            trace.status = 500
            is_handed_over = True  # Once its lease has ended.
            log_bug(turn.request_id, error)
        finally:
            self._running.pop(turn.response["id"], None)
            running.notify_followers()
            trace.usage = None if is_handed_over else running.run.usage()
            trace.queued_s = running.run.queued_s
            if not is_handed_over:
                trace.tool_use = running.run.tool_use()
            running.settle(trace.usage)
            self._observer.end(trace, route=ROUTE, ended=time.perf_counter())

    async def _is_stored(self, turn: Turn) -> bool:
        """Return whether a response is still stored; assume so if the database is away."""
        with suppress(Exception):
            return await self._responses.load(turn.principal.account, turn.response["id"]) is not None
        return True

    async def cancel(self, account: str, response_id: str) -> None:
        """Cancel a response, in whatever process it runs, and wait a while for its end."""
        if not await self._store.cancel(account, response_id):
            return
        running = self._running.get(response_id)
        if running is not None:
            running.look_now()
        deadline = time.monotonic() + self._timing.lease_s
        while time.monotonic() < deadline:
            turn = await self._responses.load(account, response_id)
            if turn is None or turn.response["status"] not in ("queued", "in_progress"):
                break
            await asyncio.sleep(self._timing.follow_s / 2)

    async def count_events(self, account: str, response_id: str) -> int:
        """Return how many events of a background response can be read now."""
        followed = await self._store.follow(account, response_id, -1)
        return len(followed.events) if followed is not None else 0

    async def follow(self, account: str, response_id: str, after: int) -> AsyncGenerator[bytes]:
        """Yield the events numbered above `after` as they are stored, until the response has ended or is gone."""
        while True:
            running = self._running.get(response_id)
            has_more = running.has_more if running is not None else None
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
        """Stop the responses of this process; other replicas take them over."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _status_of(response: Item) -> tuple[int, str | None]:
    """Return the status and the code of an ended response for the log."""
    match response["status"]:
        case "failed":
            code: str = response["error"]["code"]
            return 400 if code == "invalid_prompt" else 500, code
        case "cancelled":
            return CLIENT_CLOSED_REQUEST, "cancelled"
    return 200, None
