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
from serve_app.storage_errors import translate_error

request_logger = logging.getLogger("manta.requests")
error_logger = logging.getLogger("manta.errors")

CLIENT_CLOSED_REQUEST = 499
"""The status that records show for a client that left before its answer was complete; never sent to anyone."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)


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


def route_label(record: RequestRecord) -> str:
    """Return the route that a record is measured under: lines of batches wait their turn, so they stand apart."""
    return record.route if record.batch_id is None else f"batch:{record.route}"


def mean_inter_token_s(record: RequestRecord) -> float | None:
    """Return the mean time between a stream's tokens in seconds, None where fewer than two were streamed."""
    if not record.stream or record.ttft_s is None or record.completion_tokens < 2:
        return None
    return (record.total_s - record.ttft_s) / (record.completion_tokens - 1)


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


@dataclass(frozen=True, slots=True)
class _Children:
    """The series that one kind of request is counted in."""

    requests: Counter
    duration: Histogram
    ttft: Histogram
    inter_token: Histogram
    prompt_tokens: Counter
    cached_tokens: Counter
    completion_tokens: Counter


class PrometheusMetrics:
    """Measurements of this process as Prometheus reads them; names follow OpenTelemetry's gen_ai where it has one."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._children: dict[tuple[str, ...], _Children] = {}
        self._requests = Counter(
            "manta_requests", "Requests answered", ["route", "model", "tier", "status", "code"], registry=registry
        )
        self._tokens = Counter("manta_tokens", "Tokens used", ["model", "tier", "type"], registry=registry)
        self._in_flight = Gauge("manta_requests_in_flight", "Requests being answered", registry=registry)
        self._duration = Histogram(
            "gen_ai_server_request_duration_seconds",
            "Whole time of an answer",
            ["route", "model"],
            registry=registry,
            buckets=SECONDS,
        )
        self._ttft = Histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "Time until the first piece of a stream",
            ["model"],
            registry=registry,
            buckets=SECONDS,
        )
        self._inter_token = Histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "Mean time between the tokens of a stream",
            ["model"],
            registry=registry,
            buckets=TOKEN_SECONDS,
        )

    def begin(self) -> None:
        """Count a request that has come in."""
        self._in_flight.inc()

    def end(self, record: RequestRecord) -> None:
        """Count a request that has been answered."""
        labels = (route_label(record), record.model or "", record.tier or "", str(record.status), record.code or "")
        children = self._children.get(labels) or self._children_of(labels)
        self._in_flight.dec()
        children.requests.inc()
        children.duration.observe(record.total_s)
        if record.stream and record.ttft_s is not None:
            children.ttft.observe(record.ttft_s)
        inter_token_s = mean_inter_token_s(record)
        if inter_token_s is not None:
            children.inter_token.observe(inter_token_s)
        if record.prompt_tokens or record.completion_tokens:
            children.prompt_tokens.inc(record.prompt_tokens)
            children.cached_tokens.inc(record.cached_tokens)
            children.completion_tokens.inc(record.completion_tokens)

    def _children_of(self, labels: tuple[str, ...]) -> "_Children":
        """Look the series of one combination of labels up, once: that costs more than counting in them."""
        route, model, tier, _, _ = labels
        children = _Children(
            requests=self._requests.labels(*labels),
            duration=self._duration.labels(route, model),
            ttft=self._ttft.labels(model),
            inter_token=self._inter_token.labels(model),
            prompt_tokens=self._tokens.labels(model, tier, "prompt"),
            cached_tokens=self._tokens.labels(model, tier, "cached"),
            completion_tokens=self._tokens.labels(model, tier, "completion"),
        )
        self._children[labels] = children
        return children

    def render(self) -> bytes:
        """Return every measurement as Prometheus reads it."""
        return generate_latest(self._registry)
