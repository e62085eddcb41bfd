"""Bounds on connections: two settings of uvicorn's that Serve does not pass on, and the WebSockets of an account."""

from asyncio import BaseProtocol
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Protocol, cast

from uvicorn.config import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from serve_app.errors.api import BadRequest
from serve_app.errors.capacity import QuotaExceeded


class _WithTimer(Protocol):
    def _unset_keepalive_if_required(self) -> None: ...


def end_timers_of_lost_connections() -> None:
    """Make every uvicorn server of this process cancel the keep-alive timer of each connection that ends.

    uvicorn 0.54 leaves it running where a connection is reset, as HAProxy resets those that it no longer needs. The
    timer then holds the last request, 16 KB, for the whole keep-alive time: 90 seconds with Ray Serve.
    """
    end = AutoHTTPProtocol.connection_lost
    if end.__module__ == __name__:
        return

    def connection_lost(self: BaseProtocol, exc: Exception | None) -> None:
        end(self, exc)
        cast(_WithTimer, self)._unset_keepalive_if_required()

    AutoHTTPProtocol.connection_lost = connection_lost  # type: ignore[method-assign]


def bound_messages(max_bytes: int) -> None:
    """Make every uvicorn server of this process refuse larger messages, and all compression.

    With compression, a sender could take 15 MB of memory with 15 KB.
    """
    begin = getattr(WebSocketsSansIOProtocol.__init__, "__wrapped__", WebSocketsSansIOProtocol.__init__)

    @wraps(begin)
    def bounded(self: WebSocketsSansIOProtocol, config: Config, *others: Any, **named: Any) -> None:
        config.ws_per_message_deflate = False
        config.ws_max_size = min(config.ws_max_size, max_bytes)
        begin(self, config, *others, **named)

    WebSocketsSansIOProtocol.__init__ = bounded  # type: ignore[method-assign]


class SocketPlaces:
    """The WebSockets of each account in this process, and the bytes of its messages that wait in them."""

    def __init__(self, max_sockets: int = 32, max_waiting_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_sockets = max_sockets
        self._max_waiting_bytes = max_waiting_bytes
        self._num_sockets: Counter[str] = Counter()
        self._waiting_bytes: Counter[str] = Counter()

    @contextmanager
    def take(self, account: str) -> Iterator[None]:
        """Count a connection of an account while it lasts. Raises QuotaExceeded if the account has too many."""
        if self._num_sockets[account] >= self._max_sockets:
            raise QuotaExceeded(
                f"You have {self._max_sockets} open WebSocket connections, which is the limit. Close one, "
                "or send further turns over the others.",
                code="too_many_websockets",
            )
        self._num_sockets[account] += 1
        try:
            yield
        finally:
            self._num_sockets[account] -= 1
            if not self._num_sockets[account]:
                del self._num_sockets[account]

    def keep(self, account: str, num_bytes: int) -> None:
        """Count a waiting message. Raises BadRequest if the account's waiting messages are too large together."""
        if self._waiting_bytes[account] + num_bytes > self._max_waiting_bytes:
            raise BadRequest(
                f"The waiting messages of your connections are limited to {self._max_waiting_bytes} bytes together. "
                "Send the next one when a turn has ended."
            )
        self._waiting_bytes[account] += num_bytes

    def release(self, account: str, num_bytes: int) -> None:
        """Stop counting messages."""
        self._waiting_bytes[account] -= num_bytes
        if not self._waiting_bytes[account]:
            del self._waiting_bytes[account]
