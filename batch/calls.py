"""One line of a batch, run: the same operation as over HTTP, tried again where that may help, its outcome rendered."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
from sqlalchemy.exc import DBAPIError

from batch.gate import Gate
from batch.lines import BatchRequest, render_answer
from deployments.models.contract.engine import Usage
from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.state.batches.ledger import Outcome, Tokens
from deployments.state.database.connection import may_pass
from deployments.state.identity.principal import Principal
from deployments.state.objects.store import StoreUnavailable
from deployments.state.usage.record import RequestRecord
from serve_app.errors.api import ApiError, StoresAway
from serve_app.operations.registry import RunnableOperation
from serve_app.operations.scopes import check_operation
from serve_app.telemetry.log import api_error_for
from serve_app.telemetry.trace import RequestTrace, record_of
from serve_app.validation.body import validate_body

MAX_TRIES = 3
_MAX_WAIT_S = 5.0
_MAX_OUTAGES = 60  # Five minutes.
_TAKEN_AFTER_S = 0.05
"""A replica that is full says so at once. One that has not by then has the line, though it may answer minutes later."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a line: its outcome, its line of the output, and its record for the request log."""

    outcome: Outcome
    rendered: bytes
    record: RequestRecord


class LineCalls:
    """Runs lines with a service's operations. A replica that is full is asked again until it takes the line."""

    def __init__(
        self,
        operations: Mapping[str, RunnableOperation[Any]],
        gate: Gate,
        priority: int,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._operations = operations
        self._gate = gate
        self._priority = priority
        self._sleep = sleep
        self._clock = clock
        self._random = Random(secrets.randbits(64))  # noqa: S311 - spreads retries.

    async def run(
        self, line: int, request: BatchRequest, endpoint: str, principal: Principal, batch_id: str | None = None
    ) -> Answer:
        """Return what became of a line; whatever goes wrong is its outcome."""
        trace = begin_trace(principal, batch_id, self._clock())
        try:
            body = await self._call(request, endpoint, trace, principal)
        except Exception as error:
            return failed(line, request.custom_id, endpoint, trace, api_error_for(error, trace.request_id))
        trace.status, usage = 200, trace.usage or Usage()
        tokens = Tokens(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens)
        outcome = Outcome(line, is_failed=False, tokens=tokens, model=trace.model or "")
        rendered = render_answer(request.custom_id, trace.request_id, 200, body)
        return Answer(outcome, rendered, record_of(trace, route=endpoint, ended=time.perf_counter()))

    async def _call(self, request: BatchRequest, endpoint: str, trace: RequestTrace, principal: Principal) -> bytes:
        operation = self._operations[endpoint]
        check_operation(principal, operation.name)
        body = validate_body(request.body, operation.schema)
        raw = orjson.dumps(request.body)
        trace.model = operation.cost(body, principal).model
        num_deaths = num_refusals = num_outages = 0
        loop = asyncio.get_running_loop()
        while True:
            outcome = operation.run(body, raw, principal, request_id=trace.request_id, priority=self._priority)
            taking = loop.call_later(_TAKEN_AFTER_S, self._gate.grow)
            try:
                answer = b"".join([piece async for piece in outcome.stream])
                if loop.time() < taking.when():
                    self._gate.grow()
                trace.usage = outcome.stream.summary.usage
                return answer
            except Overloaded as refusal:
                self._gate.shrink()
                num_refusals += 1
                wait_s = min(_MAX_WAIT_S, refusal.retry_after_s * num_refusals)
            except EngineDied:
                num_deaths += 1
                if num_deaths >= MAX_TRIES:
                    raise
                wait_s = float(num_deaths)
            except (DBAPIError, StoreUnavailable, StoresAway) as error:  # A response could not be kept, say.
                num_outages += 1
                if num_outages >= _MAX_OUTAGES or (isinstance(error, DBAPIError) and not may_pass(error)):
                    raise
                wait_s = min(_MAX_WAIT_S, float(num_outages))
            finally:
                taking.cancel()
                await outcome.stream.aclose()
            await self._sleep(wait_s * self._random.uniform(0.5, 1.5))


def begin_trace(principal: Principal, batch_id: str | None, at: float) -> RequestTrace:
    """Return what is known of a line that begins to run."""
    request_id = f"req_{secrets.token_hex(16)}"
    return RequestTrace(request_id, "POST", at, time.perf_counter(), principal=principal, batch_id=batch_id)


def failed(line: int, custom_id: str, endpoint: str, trace: RequestTrace, error: ApiError) -> Answer:
    """Return what became of a line that failed."""
    trace.status, trace.code = error.status, error.code
    rendered = render_answer(custom_id, trace.request_id, error.status, error.to_wire())
    record = record_of(trace, route=endpoint, ended=time.perf_counter())
    return Answer(Outcome(line, is_failed=True), rendered, record)
