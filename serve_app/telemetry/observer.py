"""Records every request: in the metrics, and if it has a valid key, in the JSON log and in the request log.

The middleware calls it for requests; background responses, sockets and indexing call it for their own.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

import orjson

from deployments.models.price import NO_PRICES, Prices
from deployments.state.usage.record import RequestLog, RequestRecord
from deployments.steps import open_steps
from serve_app.telemetry.log import request_logger
from serve_app.telemetry.trace import RequestTrace, record_of
from serve_app.telemetry.tracing import Tracer, context_of

MAX_UNAUTHENTICATED = 60
"""How many requests without a valid key are logged per minute. Metrics count all of them, the database has none."""
_MINUTE_S = 60.0


class Metrics(Protocol):
    """Counts requests. Its methods neither wait nor raise."""

    def begin(self) -> None:
        """Count a request that has arrived."""
        ...

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        ...


class Observer:
    """Records requests as they begin and end."""

    def __init__(
        self,
        request_log: RequestLog,
        metrics: Metrics,
        prices: Prices = NO_PRICES,
        tracer: Tracer | None = None,
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
