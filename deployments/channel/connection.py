"""What both ends of a connection share: its Unix socket, its options, and the heartbeat of a connection over TCP.

The heartbeat notices that the other end is cut off without a word: its node has lost power, or the network. Both ends
send a ping in every tick, and give a connection up after six ticks in which nothing came: 2.4 to 2.8 seconds after the
last byte. So an answer goes on elsewhere within 3 seconds, and an event loop at the other end may stand still for a
second and a half. Ticks are counted instead of time: a standstill of this end is one tick, and everything that came
meanwhile is read before the next. A connection that is given up by mistake costs a pause, as its answers go on over
another. Over a Unix socket the system reports at once that the other process has ended.
"""

import asyncio
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

from deployments.channel import frames
from deployments.private_folder import make_private_folder

_TICK_S: Final = 0.4
_LEAST_TICKS: Final = 6
_PING = frames.render_frame(0, frames.PING)


class Heartbeat:
    """Closes a connection on which nothing has come for `silent_s` seconds, from its first ping on.

    A process of an older version sends no pings. A longer `silent_s` counts more ticks, and not longer ones: the other
    end may be less patient. The owner sets `has_received` whenever bytes come.
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
        """Start to send pings. A connection within the node needs none."""
        connection = self._transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            self._ping()

    def stop(self) -> None:
        """Stop to send pings."""
        if self._timer is not None:
            self._timer.cancel()

    def note_ping(self) -> None:
        """Note that the other end sends pings."""
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


def socket_path(name: str) -> str:
    """Return the path of the Unix socket `name`, in a folder that only this user may enter; the folder is created.

    Raises:
        PermissionError: the folder belongs to another user, who could listen in this one's place.
    """
    folder = Path(tempfile.gettempdir()) / f"manta-{os.getuid()}"
    make_private_folder(folder)
    return str(folder / f"{name}.sock")


def set_nodelay(transport: asyncio.Transport) -> None:
    """Set TCP_NODELAY, so that the kernel does not delay small writes."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
