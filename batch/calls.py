"""Runs one line of a batch through the same operation as over HTTP, and renders its outcome.

Calls are repeated while replicas are full, after an engine died, and while stores are away. Every other failure is the
outcome of its line.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
from sqlalchemy.exc import DBAPIError

from batch.concurrency import ConcurrencyLimiter
from batch.lines import render_answer
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.models.price import NO_PRICES, Prices
from deployments.state.batches.ledger import Outcome, Tokens
from deployments.state.database.connection import may_pass
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import StoreUnavailable
from deployments.state.usage.record import RequestRecord
from deployments.steps import open_steps
from serve_app.errors.api import ApiError
from serve_app.errors.capacity import StoresAway
from serve_app.operations.contract import RunnableOperation
from serve_app.operations.scopes import check_operation
from serve_app.telemetry.log import api_error_for
from serve_app.telemetry.trace import RequestTrace, record_of
from serve_app.telemetry.tracing import Tracer
from serve_app.validation.batch_lines import BatchRequest
from serve_app.validation.body import validate_body
from serve_app.validation.ignored import NOTHING, Ignored

MAX_TRIES = 3
_MAX_WAIT_S = 5.0
_MAX_OUTAGES = 60  # About five minutes.
_ACCEPTED_AFTER_S = 0.05
"""A full replica refuses at once. After this time without a refusal, a line counts as accepted."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a line: its outcome, its line of the output, and its record for the request log."""

    outcome: Outcome
    rendered: bytes
    record: RequestRecord


class LineCalls:
    """Runs lines with the operations of a service. A full replica is asked again until it accepts the line."""

    def __init__(
        self,
        operations: Mapping[str, RunnableOperation[Any]],
        limiter: ConcurrencyLimiter,
        priority: int,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
        prices: Prices = NO_PRICES,
        tracer: Tracer | None = None,
        ignored: Ignored = NOTHING,
    ) -> None:
        self._operations = operations
        self._limiter = limiter
        self._priority = priority
        self._sleep = sleep
        self._clock = clock
        self._prices = prices
        self._tracer = tracer
        self._ignored = ignored
        self._random = Random(secrets.randbits(64))  # noqa: S311 - spreads retries.

    async def run(self, line: int, request: BatchRequest, endpoint: str, principal: Principal, batch_id: str) -> Answer:
        """Return the result of a line; a failure is its outcome, never an exception."""
        trace = begin_trace(principal, batch_id, line, self._clock())
        if self._tracer is None:
            return await self._run(line, request, endpoint, principal, trace)
        steps, ids = open_steps(), self._tracer.begin({})
        answer = await self._run(line, request, endpoint, principal, trace)
        self._tracer.end(answer.record, steps, time.perf_counter(), {}, ids)
        return answer

    async def _run(
        self, line: int, request: BatchRequest, endpoint: str, principal: Principal, trace: RequestTrace
    ) -> Answer:
        try:
            body = await self._call(request, endpoint, trace, principal)
        except Exception as error:
            return failed(line, request.custom_id, endpoint, trace, api_error_for(error, trace.request_id))
        trace.status, usage = 200, trace.usage or Usage()
        tokens = Tokens(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens)
        outcome = Outcome(line, is_failed=False, tokens=tokens, model=trace.model or "")
        rendered = render_answer(request.custom_id, trace.request_id, 200, body)
        record = record_of(trace, route=endpoint, ended=time.perf_counter(), prices=self._prices)
        return Answer(outcome, rendered, record)

    async def _call(self, request: BatchRequest, endpoint: str, trace: RequestTrace, principal: Principal) -> bytes:
        operation = self._operations[endpoint]
        check_operation(principal, operation.name)
        self._ignored.drop_from(request.body)
        body = validate_body(request.body, operation.schema)
        raw = orjson.dumps(request.body)
        trace.model = operation.cost(body, principal).model
        num_deaths = num_refusals = num_outages = 0
        loop = asyncio.get_running_loop()
        while True:
            outcome = operation.run(body, raw, principal, request_id=trace.request_id, priority=self._priority)
            accepting = loop.call_later(_ACCEPTED_AFTER_S, self._limiter.grow)
            try:
                answer = b"".join([piece async for piece in outcome.stream])
                if loop.time() < accepting.when():
                    self._limiter.grow()
                summary = outcome.stream.summary
                trace.usage, trace.tool_use, trace.queued_s = summary.usage, summary.tool_use, summary.queued_s
                return answer
            except Overloaded as refusal:
                self._limiter.shrink()
                num_refusals += 1
                wait_s = min(_MAX_WAIT_S, refusal.retry_after_s * num_refusals)
            except EngineDied:
                num_deaths += 1
                if num_deaths >= MAX_TRIES:
                    raise
                wait_s = float(num_deaths)
            except (DBAPIError, StoreUnavailable, StoresAway) as error:  # For example, a response could not be stored.
                num_outages += 1
                if num_outages >= _MAX_OUTAGES or (isinstance(error, DBAPIError) and not may_pass(error)):
                    raise
                wait_s = min(_MAX_WAIT_S, float(num_outages))
            finally:
                accepting.cancel()
                await outcome.stream.aclose()
            await self._sleep(wait_s * self._random.uniform(0.5, 1.5))


def begin_trace(principal: Principal, batch_id: str, line: int, at: float) -> RequestTrace:
    """Return the trace of a line that starts to run; its request id stays the same if the line runs again."""
    request_id = f"req_{hashlib.sha256(f'{batch_id} {line}'.encode()).hexdigest()[:32]}"
    return RequestTrace(request_id, "POST", at, time.perf_counter(), principal=principal, batch_id=batch_id)


def failed(line: int, custom_id: str, endpoint: str, trace: RequestTrace, error: ApiError) -> Answer:
    """Return the result of a line that failed."""
    trace.status = error.status
    trace.fail(error)
    rendered = render_answer(custom_id, trace.request_id, error.status, error.to_wire())
    record = record_of(trace, route=endpoint, ended=time.perf_counter())
    return Answer(Outcome(line, is_failed=True), rendered, record)
