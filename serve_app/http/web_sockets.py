"""Bounds on WebSockets: what one message may cost, and how much the connections of an account may hold."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from serve_app.errors.api import BadRequest, QuotaExceeded


def bound_messages(max_bytes: int) -> None:
    """Have every uvicorn server of this process refuse larger messages, and all compression, from now on.

    Serve hands uvicorn no options. With compression, 15 MB of memory cost their sender 15 KB.
    """
    begin = getattr(WebSocketsSansIOProtocol.__init__, "__wrapped__", WebSocketsSansIOProtocol.__init__)

    @wraps(begin)
    def bounded(self: WebSocketsSansIOProtocol, config: Config, *others: Any, **named: Any) -> None:
        config.ws_per_message_deflate = False
        config.ws_max_size = min(config.ws_max_size, max_bytes)
        begin(self, config, *others, **named)

    WebSocketsSansIOProtocol.__init__ = bounded  # type: ignore[method-assign]


class SocketPlaces:
    """How many connections each account has in this process, and how many bytes of its messages wait in them."""

    def __init__(self, max_sockets: int = 32, max_waiting_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_sockets = max_sockets
        self._max_waiting_bytes = max_waiting_bytes
        self._num_sockets: Counter[str] = Counter()
        self._waiting_bytes: Counter[str] = Counter()

    @contextmanager
    def take(self, account: str) -> Iterator[None]:
        """Count a connection of an account while it lasts.

        Raises:
            QuotaExceeded: the account has as many as it may have.
        """
        if self._num_sockets[account] >= self._max_sockets:
            raise QuotaExceeded(
                f"You have {self._max_sockets} open WebSocket connections, as many as an account may have. Close one, "
                "or send further turns over those that are open.",
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
        """Count a message that waits.

        Raises:
            BadRequest: the messages of the account that wait would be too large together.
        """
        if self._waiting_bytes[account] + num_bytes > self._max_waiting_bytes:
            raise BadRequest(
                f"The messages that wait in your connections may have {self._max_waiting_bytes} bytes together. Send "
                "the next one when a turn has ended."
            )
        self._waiting_bytes[account] += num_bytes

    def release(self, account: str, num_bytes: int) -> None:
        """Forget messages that were kept."""
        self._waiting_bytes[account] -= num_bytes
        if not self._waiting_bytes[account]:
            del self._waiting_bytes[account]
