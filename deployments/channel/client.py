"""The client's end of the side channel: one connection to one process, and the answers that arrive over it."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict, cast

import orjson

from deployments.channel import frames
from deployments.channel.connection import Heartbeat, set_nodelay
from deployments.channel.errors import ChannelError, Lost, parse_error
from deployments.channel.tls import TlsFiles, client_context
from deployments.config import ConfigError
from deployments.patience import USUAL, Patience

MANY_UNREAD_BYTES = 1024 * 1024
"""Unread bytes beyond this may wait for their reader for `Patience.unread_s`."""
MAX_UNREAD_BYTES = 16 * 1024 * 1024
"""No piece is added to more unread bytes than these; its own size does not count."""


class Address(TypedDict):
    """The address of a server: TCP host and port, the path of its Unix socket, and the secret of its connections.

    With `tls`, its TCP port speaks TLS, and checks the client's certificate against these files.
    """

    host: str
    port: int
    path: str
    secret: str
    tls: NotRequired[TlsFiles]


@dataclass(slots=True, eq=False)
class ChannelStream:
    """The answer to one request, as it arrives."""

    _channel: "Channel"
    _number: int
    summary: dict[str, Any] = field(default_factory=dict)
    notes: list[bytes] = field(default_factory=list)
    _pieces: list[bytes] = field(default_factory=list)
    _notes: list[bytes] = field(default_factory=list)
    _unread_bytes: int = 0
    _deadline: asyncio.TimerHandle | None = None
    _waiter: asyncio.Future[None] | None = None
    _error: ChannelError | None = None
    _is_over: bool = False
    _has_ended: bool = False

    async def read(self) -> list[bytes]:
        """Return the pieces since the last call, at least one; none when the answer is complete.

        `notes` then has the note of each piece, empty if it has none. A piece with a note may be empty.

        Raises:
            ChannelError: the answer breaks off here.
        """
        if not self._pieces and not self._is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            self.notes, self._notes = self._notes, []
            self._unread_bytes = 0
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            return pieces
        if self._error is not None:
            raise self._error
        return []

    def cancel(self) -> None:
        """Cancel the request; harmless when the answer is complete."""
        if not self._is_over:
            self._is_over = True
            self._channel.cancel(self._number)

    async def wait_end(self, timeout_s: float) -> None:
        """Wait for the end of the answer, which brings the summary, or until the timeout."""
        if not self._has_ended:
            self._waiter = asyncio.get_running_loop().create_future()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._waiter, timeout_s)

    def feed(self, piece: bytes, note: bytes = b"") -> None:
        """Add a piece. An answer that is not read is cancelled and fails."""
        if self._is_over:
            return  # The piece was sent before the request was cancelled.
        if self._unread_bytes > MAX_UNREAD_BYTES:
            self._give_up()
            return
        self._pieces.append(piece)
        self._notes.append(note)
        self._unread_bytes += len(piece)
        if self._unread_bytes > MANY_UNREAD_BYTES and self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._channel.patience.unread_s, self._give_up)
        self._wake()

    def _give_up(self) -> None:
        """Drop an answer that was not read in time."""
        self.cancel()
        self._pieces, self._notes, self._unread_bytes = [], [], 0
        self._error = ChannelError("The answer was not read in time.")

    def finish(self, payload: bytes) -> None:
        """End the answer with its summary and its last piece."""
        summary, _, last = payload.partition(b"\n")
        self.summary = orjson.loads(summary)
        if last:
            self.feed(last)
        self._is_over = self._has_ended = True
        self._wake()

    def fail(self, error: ChannelError) -> None:
        """Break the answer off with an error."""
        self._error = self._error or error
        self._is_over = self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Channel(asyncio.Protocol):
    """An open connection to a server; `connect` creates it."""

    def __init__(self, on_lost: Callable[[], None], patience: Patience) -> None:
        self._streams: dict[int, ChannelStream] = {}
        self._parser = frames.FrameParser()
        self._transport: asyncio.Transport | None = None
        self._heartbeat: Heartbeat | None = None
        self._last_number = 0
        self._on_lost = on_lost
        self.patience = patience

    @property
    def num_open(self) -> int:
        """Number of unfinished answers."""
        return len(self._streams)

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None

    def open(self, header: dict[str, Any], body: bytes) -> ChannelStream:
        """Send a request and return the stream of its answer.

        Raises:
            Lost: the connection is gone.
        """
        if self._transport is None:
            raise Lost("The connection to the replica is gone.")
        self._last_number = number = self._last_number % 0xFFFFFFFF + 1
        stream = self._streams[number] = ChannelStream(self, number)
        self._transport.write(frames.render_frame(number, frames.OPEN, orjson.dumps(header) + b"\n" + body))
        return stream

    def cancel(self, number: int) -> None:
        """Cancel a request at the server; the end of the answer still arrives, with its usage."""
        if number in self._streams and self._transport is not None:
            self._transport.write(frames.render_frame(number, frames.CANCEL))

    def authenticate(self, secret: str) -> None:
        """Send the secret, which must be the first frame of a connection."""
        assert self._transport is not None
        assert self._heartbeat is not None
        self._transport.write(frames.render_frame(0, frames.HELLO, secret.encode()))
        self._heartbeat.start()

    def close(self) -> None:
        """Close the connection; unfinished answers break off."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (called by the event loop)."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not subclass it.
        self._heartbeat = Heartbeat(self._transport, self.patience.silent_s)
        set_nodelay(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass each frame to its answer (called by the event loop)."""
        streams = self._streams
        assert self._heartbeat is not None
        self._heartbeat.has_received = True
        try:
            for number, kind, payload in self._parser.feed(data):
                if kind == frames.DATA:
                    stream = streams.get(number)
                    if stream is not None:
                        stream.feed(payload)
                elif kind == frames.NOTED:
                    stream = streams.get(number)
                    if stream is not None:
                        note, piece = frames.split_noted(payload)
                        stream.feed(piece, note)
                elif kind == frames.PING:
                    self._heartbeat.note_ping()
                elif (stream := streams.pop(number, None)) is None:
                    continue
                elif kind == frames.END:
                    stream.finish(payload)
                elif kind == frames.ERROR:
                    stream.fail(parse_error(payload))
        except frames.FrameError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every unfinished answer (called by the event loop)."""
        self._transport = None
        if self._heartbeat is not None:
            self._heartbeat.stop()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.fail(Lost("The replica went away while it ran the request."))
        self._on_lost()


async def connect(address: Address, on_lost: Callable[[], None], patience: Patience = USUAL) -> Channel:
    """Return a connection to a server: over its Unix socket if it runs on this node, over TCP otherwise.

    Raises:
        Lost: no process listens there, or none answers within `patience.connect_s`.
    """
    loop = asyncio.get_running_loop()

    def make() -> Channel:
        return Channel(on_lost, patience)

    try:
        async with asyncio.timeout(patience.connect_s):
            try:
                _, channel = await loop.create_unix_connection(make, address["path"])
            except (FileNotFoundError, ConnectionRefusedError):  # It runs on another node, or left a stale socket here.
                _, channel = await loop.create_connection(make, address["host"], address["port"], **_tls_of(address))
    except ConfigError as error:
        raise Lost(str(error)) from None
    except (OSError, TimeoutError) as error:
        raise Lost("The replica cannot be reached.") from error
    channel.authenticate(address["secret"])
    return channel


def _tls_of(address: Address) -> dict[str, Any]:
    """Return the options of a connection that is encrypted if the server wants it.

    Raises:
        ConfigError: this node lacks the files.
    """
    files = address.get("tls")
    return {} if files is None else {"ssl": client_context(files), "server_hostname": files["name"]}
