"""The middleware of every HTTP request and answer: ids, headers, the request log, errors.

Plain ASGI. Nothing here looks into a body, and no message of an answer is held back.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.state.usage.record import CLIENT_CLOSED_REQUEST
from serve_app.errors.anthropic import PATHS, to_anthropic
from serve_app.errors.api import ApiError
from serve_app.http.admission import Admission, quota_headers
from serve_app.telemetry.log import api_error_for
from serve_app.telemetry.trace import Observer, RequestTrace

TRACE = "manta.trace"
"""Where an ASGI scope holds its RequestTrace."""
REQUEST_ID = "manta.request_id"
"""Where an ASGI scope holds the id that the front gave the request, if it came through one."""

# The client may send any word as its method; others are not logged.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATIC_HEADERS = (
    (b"openai-version", b"2020-10-01"),
    (b"strict-transport-security", b"max-age=31536000"),
    (b"x-content-type-options", b"nosniff"),
)


class RequestMiddleware:
    """Gives requests an id, answers their headers, and failures a body in OpenAI's format; logs each request.

    `routes` maps endpoint functions to the path templates of the log and the metrics.
    """

    def __init__(
        self, app: ASGIApp, *, admission: Admission, observer: Observer, routes: Mapping[Callable[..., Any], str]
    ) -> None:
        self._app = app
        self._admission = admission
        self._observer = observer
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; exceptions become error answers."""
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
        trace.is_anthropic = scope["path"].startswith(PATHS)
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
            trace.write_ahead = None  # Else the two would keep each other alive until the next garbage collection.
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
        if trace.is_anthropic:
            headers.append((b"request-id", trace.request_id.encode()))
        principal = trace.principal
        if principal is not None:
            headers.append((b"openai-organization", principal.organization.encode("latin-1", "replace")))
            headers += quota_headers(self._admission.quota(principal))
        return headers


class _WholeAnswer:
    """An ASGI send for HTTP/1.0, which lacks chunked answers: sends the answer at once."""

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
    """Return the id of a new request."""
    return "req_" + secrets.token_hex(16)


async def _refuse(trace: RequestTrace, send: Send, error: ApiError) -> None:
    """Answer with the error, unless an answer has begun: then the connection ends incomplete."""
    trace.fail(error)
    if trace.status:
        return
    body = orjson.dumps(to_anthropic(error, trace.request_id) if trace.is_anthropic else error.to_wire())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *((name.encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _strip_trailing_slash(scope: Scope) -> None:
    path = scope["path"]
    if len(path) > 1 and path.endswith("/"):
        scope["path"] = path.rstrip("/") or "/"


class OwnHeaders(dict[str, Any]):
    """A start message that keeps the request id it was created with, whatever Serve adds to it.

    Serve adds a second `x-request-id` to every answer, but OpenAI's clients read that header as one value.
    """

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return self._own(value) if key == "headers" else value

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as `[]` does; `dict.get` would not call `__getitem__`."""
        return self[key] if key in self else default  # noqa: SIM401

    def _own(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        first = next((header for header in headers if header[0].lower() == b"x-request-id"), None)
        return [header for header in headers if header is first or header[0].lower() != b"x-request-id"]


class OwnRequestIds:
    """Keeps the request ids of answers: see `OwnHeaders`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with the start message of its answer protected."""

        async def send_own(message: Message) -> None:
            await send(OwnHeaders(message) if message["type"] == "http.response.start" else message)

        await self._app(scope, receive, send_own)
