"""What is known of a request while it is answered, and where that goes: one log line, one record, the metrics.

Nothing here ever holds content: a request's text, its answer and the words of an unexpected exception stay out.
"""

import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import PurePath
from types import TracebackType
from typing import Any, Protocol, TextIO

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from deployments.models.engine import Usage
from deployments.state.protocol import Principal, RequestLog, RequestRecord
from serve_app.errors import ApiError
from serve_app.series import SERIES, Series, samples_of
from serve_app.storage_errors import translate_error

request_logger = logging.getLogger("manta.requests")
error_logger = logging.getLogger("manta.errors")

CLIENT_CLOSED_REQUEST = 499
"""The status that records show for a client that left before its answer was complete; never sent to anyone."""


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as far as they got: one over HTTP, or the line of a batch that `batch_id` names.

    `at` is in Unix seconds, `started` and `first_piece_at` on the monotonic clock. `model` is only set to the id of
    a model that exists, since what a client wrote there may be anything. `server_send` is the server's own send: once
    the head of an answer has passed the middleware, the rest may go there directly. One that `goes_on` after its answer
    is recorded by whoever carries it on.
    """

    request_id: str
    method: str
    at: float
    started: float
    server_send: Callable[[MutableMapping[str, Any]], Awaitable[None]] | None = None
    principal: Principal | None = None
    model: str | None = None
    status: int = 0
    code: str | None = None
    stream: bool = False
    usage: Usage | None = None
    first_piece_at: float | None = None
    goes_on: bool = False
    batch_id: str | None = None


class Metrics(Protocol):
    """Where measurements go. Neither method waits or raises."""

    def begin(self) -> None:
        """Count a request that has come in."""
        ...

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        ...


def record_of(exchange: Exchange, *, route: str, ended: float) -> RequestRecord:
    """Return the exchange as one line of the request log; `ended` is on the monotonic clock."""
    principal = exchange.principal
    usage = exchange.usage or Usage()
    first = exchange.first_piece_at
    return RequestRecord(
        request_id=exchange.request_id,
        at=exchange.at,
        key_id=principal.key_id if principal else None,
        account=principal.account if principal else None,
        tier=principal.tier if principal else None,
        method=exchange.method,
        route=route,
        model=exchange.model,
        status=exchange.status,
        code=exchange.code,
        stream=exchange.stream,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        ttft_s=round(first - exchange.started, 6) if first is not None else None,
        total_s=round(ended - exchange.started, 6),
        batch_id=exchange.batch_id,
    )


class Observer:
    """Takes note of every exchange: in the JSON log, in the request log and in the metrics."""

    def __init__(self, request_log: RequestLog, metrics: Metrics) -> None:
        self._request_log = request_log
        self._metrics = metrics

    def begin(self) -> None:
        """Take note that a request has come in."""
        self._metrics.begin()

    def end(self, exchange: Exchange, *, route: str, ended: float) -> None:
        """Take note that an exchange has ended."""
        record = record_of(exchange, route=route, ended=ended)
        self._metrics.end(record)
        self._request_log.record(record)
        if request_logger.isEnabledFor(logging.INFO):
            request_logger.info(orjson.dumps(record).decode())


def log_to(stream: TextIO) -> logging.Handler:
    """Write both logs to a stream from now on, one JSON object a line; return the handler that does."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for logger in (request_logger, error_logger):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    return handler


def api_error_for(error: Exception, request_id: str) -> ApiError:
    """Return the client's error for any exception; one that nobody foresaw is logged and answered with a plain 500."""
    translated = translate_error(error)
    if translated is None:
        log_bug(request_id, error)
        return ApiError()
    return translated


def log_bug(request_id: str, error: BaseException) -> None:
    """Write where an unexpected exception came from, without its message, which may quote a request's content."""
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 5:
        chain.append(f"{type(cause).__module__}.{type(cause).__qualname__} at {_frames(cause.__traceback__)}")
        cause = cause.__cause__ or cause.__context__
    error_logger.error(orjson.dumps({"request_id": request_id, "chain": chain}).decode())


def _frames(trace: TracebackType | None) -> str:
    frames = traceback.walk_tb(trace)
    places = [f"{PurePath(f.f_code.co_filename).name}:{line} {f.f_code.co_name}" for f, line in frames]
    return " > ".join(places[-20:])


class PrometheusMetrics:
    """Measurements of this process as Prometheus reads them."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._in_flight = Gauge("manta_requests_in_flight", "Requests being answered", registry=registry)
        self._metrics = {
            one: Histogram(one.name, one.description, one.labels, registry=registry, buckets=one.buckets)
            if one.buckets
            else Counter(one.name, one.description, one.labels, registry=registry)
            for one in SERIES
        }
        self._adders: dict[tuple[Series, tuple[str, ...]], Callable[[float], None]] = {}

    def begin(self) -> None:
        """Count a request that has come in."""
        self._in_flight.inc()

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        self._in_flight.dec()
        for series, values, amount in samples_of(record):
            add = self._adders.get((series, values)) or self._adder_of(series, values)
            add(amount)

    def _adder_of(self, series: Series, values: tuple[str, ...]) -> Callable[[float], None]:
        """Look up what counts under these labels, once: that costs more than counting."""
        child = self._metrics[series].labels(*values)
        add = child.observe if isinstance(child, Histogram) else child.inc
        self._adders[series, values] = add
        return add

    def render(self) -> bytes:
        """Return every measurement as Prometheus reads it."""
        return generate_latest(self._registry)
