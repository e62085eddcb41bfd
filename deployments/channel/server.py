"""The server's end of the side channel: accepts requests and sends the pieces of their answers.

Model replicas, code interpreters and the gatekeeper each run one. The server refuses requests beyond its capacity,
however many clients there are. It passes requests to its `Runner` unread.
"""

import asyncio
import contextlib
import hmac
import logging
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import orjson

from deployments.channel import frames
from deployments.channel.connection import Heartbeat, set_nodelay
from deployments.channel.errors import ChannelError, Full, Lost, render_error
from deployments.channel.tls import TlsFiles, server_context
from deployments.patience import USUAL, Patience

logger = logging.getLogger(__name__)


class Reply(Protocol):
    """The answer of one request. No method waits."""

    def write(self, piece: bytes, note: bytes = b"") -> None:
        """Send a piece of the answer, with a note for its reader."""

    def end(self, summary: dict[str, Any], last: bytes = b"") -> None:
        """Complete the answer with its last piece; nothing may follow."""

    def fail(self, error: ChannelError) -> None:
        """Break the answer off; nothing may follow."""


class Runner(Protocol):
    """Carries out requests."""

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request; cancelled when its client leaves, and may then still send the summary.

        Raises:
            ChannelError: the request did not run, or broke off.
        """


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many requests a server accepts: `running` at once, and `queued` beyond that.

    `payer_of` returns the account of a request from its header, None for a request without a claim to a place. An
    account with less than an equal part of the places is accepted even if all are taken.
    """

    running: int
    queued: int
    payer_of: Callable[[dict[str, Any]], str | None] = lambda _: None

    @property
    def all(self) -> int:
        """How many requests may be here at once."""
        return self.running + self.queued


class ChannelServer:
    """Listens on a Unix socket for clients on its own node, and on a TCP port for others, with TLS if it is given."""

    def __init__(
        self, runner: Runner, capacity: Capacity, tls: TlsFiles | None = None, patience: Patience = USUAL
    ) -> None:
        self.num_ongoing = 0
        self.patience = patience
        self.is_draining = False
        self._runner = runner
        self._capacity = capacity
        self._tls = tls
        self.secret = os.urandom(32).hex().encode()
        self._servers: list[asyncio.Server] = []
        self._socket_path: str | None = None
        self.connections: set[_ServerConnection] = set()
        self._running: dict[asyncio.Task[None], _Reply] = {}
        self._payers: Counter[str | None] = Counter()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def has_waiting(self) -> bool:
        """Whether more requests are here than can run at once."""
        return self.num_ongoing > self._capacity.running

    async def start(self, host: str, socket_path: str) -> dict[str, Any]:
        """Start to listen; return the `Address` for `connect`, with the secret.

        Raises:
            ConfigError: the files for TLS cannot be used.
        """
        context = None if self._tls is None else server_context(self._tls)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(socket_path)
        self._socket_path = socket_path
        make = partial(_ServerConnection, self)
        local = await loop.create_unix_server(make, path=socket_path)
        os.chmod(socket_path, 0o600)
        handshake_s = None if context is None else self.patience.hello_s
        remote = await loop.create_server(make, host=host, port=0, ssl=context, ssl_handshake_timeout=handshake_s)
        self._servers = [local, remote]
        port = remote.sockets[0].getsockname()[1]
        address: dict[str, Any] = {"host": host, "port": port, "path": socket_path, "secret": self.secret.decode()}
        return address if self._tls is None else {**address, "tls": self._tls}

    def accept(self, connection: "_ServerConnection", stream: int, payload: bytes) -> None:
        """Start one request, or refuse it at once."""
        reply = _Reply(connection, stream)
        if self.is_draining:
            reply.fail(Full("This replica is shutting down.", retry_after_s=0.0))
            return
        head, _, body = payload.partition(b"\n")
        try:
            header = orjson.loads(head)
            payer = self._capacity.payer_of(header)
        except (ValueError, KeyError):  # It fails alone: other requests use the connection too.
            reply.fail(ChannelError("The replica could not read the request."))
            return
        if self._is_full_for(payer):
            reply.fail(Full("Every place is taken, please try again later", retry_after_s=1.0))
            return
        self.num_ongoing += 1
        self._payers[payer] += 1
        self._idle.clear()
        task = asyncio.get_running_loop().create_task(self._run(header, body, reply))
        connection.tasks[stream] = task
        self._running[task] = reply
        task.add_done_callback(lambda done: self._note_end(done, reply, payer))

    def _is_full_for(self, payer: str | None) -> bool:
        if self.num_ongoing < self._capacity.all:
            return False
        num_payers = len(self._payers.keys() | {payer})
        return payer is None or self._payers[payer] >= self._capacity.all // num_payers

    def _note_end(self, task: asyncio.Task[None], reply: "_Reply", payer: str | None) -> None:
        """Forget a request. Its task cannot do so: it may be cancelled before its first line has run."""
        self._running.pop(task, None)
        reply.connection.tasks.pop(reply.stream, None)
        self.num_ongoing -= 1
        self._payers[payer] -= 1
        if not self._payers[payer]:
            del self._payers[payer]
        if not self.num_ongoing:
            self._idle.set()
        if not reply.is_over:  # The client cancelled the request and waits for the end.
            reply.end({})

    async def _run(self, header: dict[str, Any], body: bytes, reply: "_Reply") -> None:
        try:
            await self._runner.run(header, body, reply)
        except ChannelError as error:
            reply.fail(error)
        except Exception as error:
            name = type(error).__name__
            bare = RuntimeError(name)  # Without the message, which may quote the request.
            logger.error("request failed in the replica: %s", name, exc_info=(RuntimeError, bare, error.__traceback__))
            reply.fail(ChannelError("The replica failed while it ran the request."))

    def detach(self, connection: "_ServerConnection") -> None:
        """Drop a connection that was lost, and cancel its requests."""
        self.connections.discard(connection)
        for task in list(connection.tasks.values()):
            task.cancel()

    async def drain(self, timeout_s: float) -> None:
        """Refuse new requests; wait at most `timeout_s` seconds for the running ones to end."""
        self.is_draining = True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)

    async def close(self) -> None:
        """Break off every request, close every connection, and remove the Unix socket."""
        for server in self._servers:
            server.close()
        for task, reply in list(self._running.items()):
            reply.fail(Lost("The replica was stopped while it ran the request."))
            task.cancel()
        for connection in list(self.connections):
            connection.finish()
        if self._socket_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._socket_path)


class _Reply:
    """Queues the frames of one answer for the connection's next write."""

    __slots__ = ("connection", "is_over", "stream")

    def __init__(self, connection: "_ServerConnection", stream: int) -> None:
        self.is_over = False
        self.connection = connection
        self.stream = stream

    def write(self, piece: bytes, note: bytes = b"") -> None:
        if note:
            self.connection.queue(frames.render_noted(self.stream, note, piece))
        else:
            self.connection.queue(frames.render_frame(self.stream, frames.DATA, piece))

    def end(self, summary: dict[str, Any], last: bytes = b"") -> None:
        if self.is_over:
            return
        self.is_over = True
        payload = orjson.dumps(summary) + b"\n" + last if last else orjson.dumps(summary)
        self.connection.queue(frames.render_frame(self.stream, frames.END, payload))

    def fail(self, error: ChannelError) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.connection.queue(frames.render_frame(self.stream, frames.ERROR, render_error(error)))


class _ServerConnection(asyncio.Protocol):
    """The connection of one client."""

    def __init__(self, server: ChannelServer) -> None:
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._server = server
        self._parser = frames.FrameParser(frames.MAX_HELLO_BYTES)
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._call_soon: Callable[..., Any] = asyncio.get_running_loop().call_soon
        self._is_known = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not subclass it.
        set_nodelay(self._transport)
        self._heartbeat = Heartbeat(self._transport, self._server.patience.silent_s)
        self._deadline = asyncio.get_running_loop().call_later(self._server.patience.hello_s, self.close)
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._heartbeat.has_received = True
        try:
            for stream, kind, payload in self._parser.feed(data):
                self._handle(stream, kind, payload)
        except frames.FrameError:
            self.close()

    def _handle(self, stream: int, kind: int, payload: bytes) -> None:
        if not self._is_known:
            self._is_known = kind == frames.HELLO and hmac.compare_digest(payload, self._server.secret)
            if not self._is_known:
                raise frames.FrameError("the connection did not start with the secret")
            self._deadline.cancel()
            self._parser.max_payload_bytes = frames.MAX_PAYLOAD_BYTES
            self._heartbeat.start()
        elif kind == frames.OPEN:
            self._server.accept(self, stream, payload)
        elif kind == frames.CANCEL and (task := self.tasks.get(stream)):
            task.cancel()
        elif kind == frames.PING:
            self._heartbeat.note_ping()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._deadline.cancel()
        self._heartbeat.stop()
        self._server.detach(self)

    def queue(self, frame: bytes) -> None:
        """Send the frame in one write with all others of this turn of the event loop."""
        if not self._outgoing:
            self._call_soon(self._flush)
        self._outgoing.append(frame)

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if self._transport is not None:
            self._transport.write(b"".join(outgoing))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Close the connection after the queued frames are sent."""
        if self._transport is not None:
            self._flush()
            self._transport.close()
