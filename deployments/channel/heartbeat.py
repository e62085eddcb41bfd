"""Notices that the other end of a TCP connection is cut off without a word: its node has lost power, or the network.

Both ends send a ping in every tick, and give a connection up after six ticks in which nothing came: 2.4 to 2.8 seconds
after the last byte. So an answer goes on elsewhere within 3 seconds, and an event loop at the other end may
stand still for a second and a half. Ticks are counted instead of time: where this end stood still itself, that is one
tick, and what came meanwhile is read before the next. A connection that is given up by mistake costs a pause, as its
answers go on over another. Over a Unix socket the system says at once when the other process ends.
"""

import asyncio
import socket
from typing import Final

from deployments.channel import frames

_TICK_S: Final = 0.4
_LEAST_TICKS: Final = 6
_PING = frames.render_frame(0, frames.PING)


class Heartbeat:
    """Watches one connection, from the first ping that comes: a process of an older version sends none.

    It is given up when nothing has come for `silent_s` seconds. One that is more patient counts more ticks; they are no
    longer, for the other end need not be so patient. Its owner sets `has_received` whenever bytes come.
    """

    def __init__(self, transport: asyncio.Transport, silent_s: float) -> None:
        self.has_received = False
        self._transport = transport
        self._tick_s = min(_TICK_S, silent_s / _LEAST_TICKS)
        self._max_silent = round(silent_s / self._tick_s)
        self._num_silent = 0
        self._is_watching = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to send pings; does nothing on a connection within the node."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            self._ping()

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def note_ping(self) -> None:
        """Take in that the other end sends pings."""
        self._is_watching = True

    def _ping(self) -> None:
        self._transport.write(_PING)
        self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        self._num_silent = 0 if self.has_received else self._num_silent + 1
        self.has_received = False
        if self._is_watching and self._num_silent >= self._max_silent:
            self._transport.abort()
            return
        self._ping()
