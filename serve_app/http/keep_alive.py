"""Ends the keep-alive timers of connections that were reset, which uvicorn 0.54 leaves running.

It cancels such a timer only where a connection ends in peace. HAProxy resets those that it no longer needs, and the
timer then holds the last request of each, with all that belongs to it, for the whole keep-alive time: 90 seconds with
Ray Serve, 16 KB a request.
"""

from asyncio import BaseProtocol
from typing import Protocol, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class _WithTimer(Protocol):
    def _unset_keepalive_if_required(self) -> None: ...


def end_timers_of_lost_connections() -> None:
    """Have every uvicorn server of this process cancel the timer of each connection that ends, from now on."""
    end = AutoHTTPProtocol.connection_lost
    if end.__module__ == __name__:
        return

    def connection_lost(self: BaseProtocol, exc: Exception | None) -> None:
        end(self, exc)
        cast(_WithTimer, self)._unset_keepalive_if_required()

    AutoHTTPProtocol.connection_lost = connection_lost  # type: ignore[method-assign]
