"""Bounds on the body of a request: how large it may be, how slowly it may come, that it is not compressed."""

import asyncio
import ctypes
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.errors.api import BodyTooLarge, ReceiveTimeout, UnsupportedMediaType

LARGE_BYTES = 4 * 1024 * 1024
"""From here on a body counts as large. Parsed, it takes several times its bytes."""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # None without glibc.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """The bounds of a request body.

    A body has `grace_s` to arrive, and a second more for every `min_bytes_per_s` that have arrived. `param` is the
    parameter that errors name.
    """

    max_bytes: int = 64 * 1024 * 1024
    grace_s: float = 30.0
    min_bytes_per_s: float = 64 * 1024
    param: str | None = None


class BodyLimitMiddleware:
    """Refuses bodies that are too large or too slow before the rest of them is read.

    `exceptions` holds the bounds of some paths, `below` those of all paths with a prefix.
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
            UnsupportedMediaType: at once, for a compressed body.
            BodyTooLarge, ReceiveTimeout: at once if declared too large, else while the body is received.
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
    """An ASGI receive that bounds the body."""

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


def declared_bytes(scope: Scope) -> int:
    """Return the `content-length`, 0 where there is none."""
    value = _header(scope, b"content-length")
    # Python refuses to read numbers of thousands of digits; one of twenty is too large already.
    return int(value[:20]) if value.isdigit() else 0


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")


async def give_back_memory() -> None:
    """Give freed memory back to the kernel, in a thread: by itself glibc keeps most of what a large body took."""
    if _trim is not None:
        await asyncio.to_thread(_trim_now)


def _trim_now() -> None:
    if _one_at_a_time.acquire(blocking=False):  # Another thread does it for all.
        try:
            assert _trim is not None
            _trim(0)
        finally:
            _one_at_a_time.release()
