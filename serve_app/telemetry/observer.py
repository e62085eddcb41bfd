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
"""How many requests without a valid key are logged in a minute. The database keeps none of them; metrics count all."""
_MINUTE_S = 60.0


class Metrics(Protocol):
    """Where measurements go. Neither method waits or raises."""

    def begin(self) -> None:
        """Count a request that has come in."""
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
        """Record that a request has come in."""
        self._metrics.begin()

    def follow(self, trace: RequestTrace, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Note the steps of this task as those of a request, with what its client traces, where traces are on."""
        if self._tracer is not None:
            trace.steps, trace.context = open_steps(), context_of(headers)
            trace.span_ids = self._tracer.begin(trace.context)

    def write_ahead(self, trace: RequestTrace, *, route: str, ended: float) -> None:
        """Take down that a request ends, before its client can know: it counts even if this process dies now."""
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
        """Return whether to log a request without a valid key: at most MAX_UNAUTHENTICATED of them in a minute."""
        if now - self._counted_since >= _MINUTE_S:
            self._counted_since, self._num_unauthenticated = now, 0
        self._num_unauthenticated += 1
        return self._num_unauthenticated <= MAX_UNAUTHENTICATED
