"""One line of a batch, run: the same operation as over HTTP, tried again where that may help, its outcome rendered."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson

from batch.gate import Gate
from batch.lines import BatchRequest, render_answer
from deployments.models.engine import Usage
from deployments.models.errors import EngineDied, EngineError, Overloaded
from deployments.state.batch_ledger import Outcome, Tokens
from deployments.state.protocol import Principal
from serve_app.body import validate_body
from serve_app.errors import ApiError, translate_engine_error
from serve_app.observability import log_bug
from serve_app.operations.registry import Operation
from serve_app.operations.scopes import check_operation

MAX_TRIES = 3
_MAX_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a line: its outcome, and its line of the output."""

    outcome: Outcome
    rendered: bytes


class LineCalls:
    """Runs lines with a service's operations. A replica that is full is asked again until it takes the line."""

    def __init__(
        self,
        operations: Mapping[str, Operation[Any]],
        gate: Gate,
        priority: int,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._operations = operations
        self._gate = gate
        self._priority = priority
        self._sleep = sleep
        self._random = Random(secrets.randbits(64))  # noqa: S311 - spreads retries.

    async def run(self, line: int, request: BatchRequest, endpoint: str, principal: Principal) -> Answer:
        """Return what became of a line; whatever goes wrong is its outcome."""
        request_id = f"req_{secrets.token_hex(16)}"
        try:
            body, usage, model = await self._call(request, endpoint, principal, request_id)
        except ApiError as error:
            return _failed(line, request, request_id, error)
        except EngineError as error:
            return _failed(line, request, request_id, translate_engine_error(error))
        except Exception as error:
            log_bug(request_id, error)
            return _failed(line, request, request_id, ApiError())
        tokens = Tokens(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens)
        rendered = render_answer(request.custom_id, request_id, 200, body)
        return Answer(Outcome(line, is_failed=False, tokens=tokens, model=model), rendered)

    async def _call(
        self, request: BatchRequest, endpoint: str, principal: Principal, request_id: str
    ) -> tuple[bytes, Usage, str]:
        operation = self._operations[endpoint]
        check_operation(principal, operation.name)
        body = validate_body(request.body, operation.schema)
        raw = orjson.dumps(request.body)
        num_deaths = num_refusals = 0
        while True:
            outcome = operation.run(body, raw, principal, request_id=request_id, priority=self._priority)
            try:
                answer = b"".join([piece async for piece in outcome.stream])
                self._gate.grow()
                return answer, outcome.stream.summary.usage or Usage(), outcome.cost.model
            except Overloaded as refusal:
                self._gate.shrink()
                num_refusals += 1
                wait_s = min(_MAX_WAIT_S, refusal.retry_after_s * num_refusals)
            except EngineDied:
                num_deaths += 1
                if num_deaths >= MAX_TRIES:
                    raise
                wait_s = float(num_deaths)
            finally:
                await outcome.stream.aclose()
            await self._sleep(wait_s * self._random.uniform(0.5, 1.5))


def _failed(line: int, request: BatchRequest, request_id: str, error: ApiError) -> Answer:
    rendered = render_answer(request.custom_id, request_id, error.status, error.to_wire())
    return Answer(Outcome(line, is_failed=True), rendered)
