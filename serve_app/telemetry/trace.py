"""What is known about a request while it is answered, and its record in metrics, logs and traces. Never content.

The middleware records requests; background responses, sockets and indexing record their own.
"""

import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from typing import Any, Protocol

import orjson
from pydantic import BaseModel

from deployments.models.contract.engine import NO_TOOL_USE, ToolUse, Usage
from deployments.models.price import NO_PRICES, Prices
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import weighted
from deployments.state.usage.record import RequestLog, RequestRecord
from deployments.steps import Step, open_steps
from serve_app.errors.api import ApiError
from serve_app.telemetry.log import request_logger
from serve_app.telemetry.tracing import Tracer, context_of

MAX_UNAUTHENTICATED = 60
"""How many requests without a valid key are logged per minute. Metrics count all of them, the database has none."""
_MINUTE_S = 60.0
_PART = re.compile(r"\[\d+\]|\.?([^.\[\]]+)")


@dataclass(slots=True)
class RequestTrace:
    """A request over HTTP, or the line of the batch `batch_id`, and its answer so far.

    - `at` is in Unix seconds, `started` and `first_piece_at` on the monotonic clock.
    - `model` is only ever the id of an existing model, never the text that a client sent.
    - `server_send` is the server's own send: once the headers have passed the middleware, the body may go there.
    - `write_ahead` records the request as it is. Call it before the last byte of the answer is sent.
    - `goes_on`: the request continues after its answer, and is recorded when it ends.
    - `is_repeated`: a retry; the first replica records it.
    - Each token counts `token_weight` times against limits.
    - `key_digest` identifies the secret that the client sent.
    - `is_anthropic`: errors have the format of Anthropic's interface.
    - `steps`, the client's trace `context` and `span_ids` are set if traces are on.
    """

    request_id: str
    method: str
    at: float
    started: float
    server_send: Callable[[MutableMapping[str, Any]], Awaitable[None]] | None = None
    write_ahead: Callable[[], None] | None = None
    principal: Principal | None = None
    key_digest: bytes | None = None
    model: str | None = None
    status: int = 0
    code: str | None = None
    param: str | None = None
    stream: bool = False
    usage: Usage | None = None
    tool_use: ToolUse = NO_TOOL_USE
    service_tier: str = "default"
    token_weight: float = 1.0
    first_piece_at: float | None = None
    goes_on: bool = False
    is_repeated: bool = False
    batch_id: str | None = None
    queued_s: float | None = None
    is_anthropic: bool = False
    steps: list[Step] | None = None
    context: Mapping[str, str] = field(default_factory=dict)
    span_ids: Any = None

    def fail(self, error: ApiError) -> None:
        """Note the code of an error, and the parameter at fault or the limit that refused the request."""
        self.code = error.code
        self.param = error.limit or known_part(error.param)


def record_of(trace: RequestTrace, *, route: str, ended: float, prices: Prices = NO_PRICES) -> RequestRecord:
    """Return the request's record in the request log; `ended` is on the monotonic clock."""
    principal = trace.principal
    usage = trace.usage or Usage()
    first = trace.first_piece_at
    costs = prices.costs(
        trace.model,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        is_flex=trace.service_tier == "flex",
        is_batch=trace.batch_id is not None,
    )
    return RequestRecord(
        request_id=trace.request_id,
        at=trace.at,
        key_id=principal.key_id if principal else None,
        account=principal.account if principal else None,
        tier=principal.tier if principal else None,
        method=trace.method,
        route=route,
        model=trace.model,
        status=trace.status,
        code=trace.code,
        stream=trace.stream,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        ttft_s=round(first - trace.started, 6) if first is not None else None,
        total_s=round(ended - trace.started, 6),
        batch_id=trace.batch_id,
        service_tier=None if trace.service_tier == "default" else trace.service_tier,
        discounted_tokens=usage.total_tokens - weighted(usage.total_tokens, trace.token_weight),
        file_search_calls=trace.tool_use.file_searches,
        web_search_calls=trace.tool_use.web_searches,
        code_sessions=trace.tool_use.code_sessions,
        input_cost=costs.input,
        cached_cost=costs.cached,
        output_cost=costs.output,
        queued_s=trace.queued_s,
        param=trace.param,
    )


class Metrics(Protocol):
    """Counts requests. Its methods neither wait nor raise."""

    def begin(self) -> None:
        """Count a request that has arrived."""

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""


class Observer:
    """Records requests as they begin and end."""

    def __init__(
        self, request_log: RequestLog, metrics: Metrics, prices: Prices = NO_PRICES, tracer: Tracer | None = None
    ) -> None:
        self._request_log = request_log
        self._metrics = metrics
        self._prices = prices
        self._tracer = tracer
        self._counted_since = -math.inf
        self._num_unauthenticated = 0

    def begin(self) -> None:
        """Record that a request has arrived."""
        self._metrics.begin()

    def follow(self, trace: RequestTrace, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """If traces are on, note the steps of this task for a request, with the trace context of its client."""
        if self._tracer is not None:
            trace.steps, trace.context = open_steps(), context_of(headers)
            trace.span_ids = self._tracer.begin(trace.context)

    def write_ahead(self, trace: RequestTrace, *, route: str, ended: float) -> None:
        """Record a request that is about to end, before its client learns of it: so it counts even if we die now."""
        if trace.principal is None:
            return
        record = record_of(trace, route=route, ended=ended, prices=self._prices)
        self._request_log.write_ahead(record if record.status else replace(record, status=int(HTTPStatus.OK)))

    def end(self, trace: RequestTrace, *, route: str, ended: float) -> None:
        """Record that a request has ended."""
        record = record_of(trace, route=route, ended=ended, prices=self._prices)
        self._metrics.end(record)
        if self._tracer is not None and trace.steps is not None:
            self._tracer.end(record, trace.steps, ended, trace.context, trace.span_ids)
        if not trace.is_repeated and record.key_id is not None:
            self._request_log.record(record)
        if request_logger.isEnabledFor(logging.INFO) and (
            record.key_id is not None or self._may_log_unauthenticated(ended)
        ):
            request_logger.info(orjson.dumps(record).decode())

    def _may_log_unauthenticated(self, now: float) -> bool:
        if now - self._counted_since >= _MINUTE_S:
            self._counted_since, self._num_unauthenticated = now, 0
        self._num_unauthenticated += 1
        return self._num_unauthenticated <= MAX_UNAUTHENTICATED


def known_part(param: str | None) -> str | None:
    """Return the path of a parameter up to its first unknown name; None if nothing of it is known."""
    end = 0
    for part in _PART.finditer(param or ""):
        if part[1] is not None and part[1] not in _known_names():
            break
        end = part.end()
    return (param or "")[:end] or None


@cache
def _known_names() -> frozenset[str]:
    return frozenset(_names_in(BaseModel))


def _names_in(model: type[BaseModel]) -> Iterator[str]:
    for kind in model.__subclasses__():
        for name, info in kind.model_fields.items():
            yield info.alias or name
        yield from _names_in(kind)
