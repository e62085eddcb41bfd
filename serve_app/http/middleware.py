"""What every HTTP request passes first and every answer passes last: ids, headers, bounds on the body, refusals.

Plain ASGI. Nothing here looks into a body, and no message of an answer is held back.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.state.usage.record import CLIENT_CLOSED_REQUEST
from serve_app.errors.api import ApiError, BodyTooLarge, ReceiveTimeout, UnsupportedMediaType
from serve_app.http.admission import Admission, quota_headers
from serve_app.http.memory import LARGE_BYTES, give_back_memory
from serve_app.telemetry.log import api_error_for
from serve_app.telemetry.trace import Observer, RequestTrace

TRACE = "manta.trace"
"""Where an ASGI scope holds its RequestTrace."""
REQUEST_ID = "manta.request_id"
"""Where an ASGI scope holds the id that the front gave the request, if it came through one."""

# A method is a word of the client's choosing, so others are not written down.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATIC_HEADERS = (
    (b"openai-version", b"2020-10-01"),
    (b"strict-transport-security", b"max-age=31536000"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How large a request body may be and how slowly it may come.

    A body has `grace_s` to arrive, and a second more for every `min_bytes_per_s` that have arrived. `param` is the
    parameter that an error blames.
    """

    max_bytes: int = 64 * 1024 * 1024
    grace_s: float = 30.0
    min_bytes_per_s: float = 64 * 1024
    param: str | None = None


class RequestMiddleware:
    """Gives every request an id, every answer its headers, and every failure a body in OpenAI's shape.

    `routes` maps endpoint functions to the path templates under which requests are counted.
    """

    def __init__(
        self, app: ASGIApp, *, admission: Admission, observer: Observer, routes: Mapping[Callable[..., Any], str]
    ) -> None:
        self._app = app
        self._admission = admission
        self._observer = observer
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; an exception never leaves here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope.get("http_version") == "1.0":
            send = _WholeAnswer(send)
        trace = RequestTrace(
            request_id=scope.get(REQUEST_ID) or new_request_id(),
            method=scope["method"] if scope["method"] in _METHODS else "OTHER",
            at=time.time(),
            started=time.perf_counter(),
            server_send=send,
        )
        trace.write_ahead = partial(self._write_ahead, scope, trace)
        scope[TRACE] = trace
        _strip_trailing_slash(scope)
        self._observer.begin()
        self._observer.follow(trace, scope["headers"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers(trace)]
            elif trace.write_ahead is not None and not message.get("more_body", False):
                trace.write_ahead()
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            await _refuse(trace, send_with_headers, api_error_for(error, trace.request_id))
        finally:
            trace.write_ahead = None  # Or the two would hold each other until the garbage collector comes.
            trace.status = trace.status or CLIENT_CLOSED_REQUEST
            if not trace.goes_on:
                self._observer.end(trace, route=self._route(scope), ended=time.perf_counter())

    def _write_ahead(self, scope: Scope, trace: RequestTrace) -> None:
        trace.write_ahead = None
        if trace.goes_on or trace.is_repeated:
            return
        self._observer.write_ahead(trace, route=self._route(scope), ended=time.perf_counter())

    def _route(self, scope: Scope) -> str:
        return self._routes.get(scope.get("endpoint"), "unmatched")  # type: ignore[arg-type]

    def _headers(self, trace: RequestTrace) -> list[tuple[bytes, bytes]]:
        headers = [
            (b"x-request-id", trace.request_id.encode()),
            (b"openai-processing-ms", b"%d" % ((time.perf_counter() - trace.started) * 1000)),
            *_STATIC_HEADERS,
        ]
        principal = trace.principal
        if principal is not None:
            headers.append((b"openai-organization", principal.organization.encode("latin-1", "replace")))
            headers += quota_headers(self._admission.quota(principal))
        return headers


class BodyLimitMiddleware:
    """Refuses bodies that are too large or too slow, before the rest of them is read.

    `exceptions` holds the bounds of paths that have their own, `below` those of all paths that begin so.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        bounds: BodyLimits,
        exceptions: Mapping[str, BodyLimits] | None = None,
        below: Mapping[str, BodyLimits] | None = None,
    ) -> None:
        self._app = app
        self._bounds = bounds
        self._exceptions = exceptions or {}
        self._below = below or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body bounded.

        Raises:
            UnsupportedMediaType: at once, for a body that is compressed.
            BodyTooLarge, ReceiveTimeout: at once for a body declared too large, else while it is received.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        encoding = _header(scope, b"content-encoding").decode("latin-1")
        if encoding.lower() not in ("", "identity"):
            raise UnsupportedMediaType(encoding)
        bounds = self._bounds_of(scope["path"])
        if declared_bytes(scope) > bounds.max_bytes:
            raise BodyTooLarge(bounds.max_bytes, bounds.param)
        limited = _LimitedReceive(receive, bounds)
        try:
            await self._app(scope, limited, send)
        finally:
            if limited.num_bytes >= LARGE_BYTES:
                await give_back_memory()

    def _bounds_of(self, path: str) -> BodyLimits:
        for beginning, bounds in self._below.items():
            if path.startswith(beginning):
                return bounds
        return self._exceptions.get(path, self._bounds)


class _LimitedReceive:
    """An ASGI receive that bounds what comes through it; once the body is complete it only passes on."""

    __slots__ = ("_bounds", "_deadline", "_is_complete", "_receive", "num_bytes")

    def __init__(self, receive: Receive, bounds: BodyLimits) -> None:
        self._receive = receive
        self._bounds = bounds
        self.num_bytes = 0
        self._is_complete = False
        self._deadline: float | None = None

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        message = await self._receive_in_time()
        self.num_bytes += len(message.get("body", b""))
        if self.num_bytes > self._bounds.max_bytes:
            raise BodyTooLarge(self._bounds.max_bytes, self._bounds.param)
        self._is_complete = not message.get("more_body", False)
        return message

    async def _receive_in_time(self) -> Message:
        now = asyncio.get_running_loop().time()
        if self._deadline is None:
            self._deadline = now + self._bounds.grace_s
        allowed = self._deadline + self.num_bytes / self._bounds.min_bytes_per_s
        try:
            async with asyncio.timeout_at(allowed):
                return await self._receive()
        except TimeoutError:
            raise ReceiveTimeout(self._bounds.grace_s) from None


class _WholeAnswer:
    """An ASGI send that sends an answer whole: a client of HTTP/1.0 would take the sizes of its chunks for content."""

    __slots__ = ("_body", "_send", "_start")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = bytearray()

    async def __call__(self, message: Message) -> None:
        is_start = message["type"] == "http.response.start"
        if is_start and not any(name == b"content-length" for name, _ in message["headers"]):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                headers = [*self._start["headers"], (b"content-length", b"%d" % len(self._body))]
                await self._send({**self._start, "headers": headers})
                await self._send({**message, "body": bytes(self._body)})


def new_request_id() -> str:
    """Return the id of a request that comes in."""
    return "req_" + secrets.token_hex(16)


async def _refuse(trace: RequestTrace, send: Send, error: ApiError) -> None:
    """Answer with the error, unless an answer has begun: then the connection is left to end incomplete."""
    trace.code = error.code
    if trace.status:
        return
    body = orjson.dumps(error.to_wire())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *((name.encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def declared_bytes(scope: Scope) -> int:
    """Return how many bytes the body has by its `content-length`, 0 where there is none."""
    value = _header(scope, b"content-length")
    # Python refuses to read numbers of thousands of digits; one of twenty is too large already.
    return int(value[:20]) if value.isdigit() else 0


def _header(scope: Scope, name: bytes) -> bytes:
    """Return the value of a header, empty where there is none."""
    return next((value for key, value in scope["headers"] if key == name), b"")


def _strip_trailing_slash(scope: Scope) -> None:
    path = scope["path"]
    if len(path) > 1 and path.endswith("/"):
        scope["path"] = path.rstrip("/") or "/"
