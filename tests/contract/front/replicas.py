"""Ingress replicas for fronts under test: small real HTTP servers in this process with behaviours to choose."""

import asyncio
import ctypes
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from deployments.proof import NONCE_HEADER, PROOF_HEADER, QUESTION_PATH, FrontTrust, is_same
from tests.listening import stop_listening

_SO_ATTACH_FILTER = 26
_ACCEPT_NO_BYTE = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # The instruction `ret #0`.
_DROP_ALL = struct.pack("@HP", 1, ctypes.addressof(_ACCEPT_NO_BYTE))
"""A socket filter: the kernel drops every packet before TCP sees it."""
TRUST = FrontTrust.from_pepper(b"contract tests of the front " * 2)
STRANGER = FrontTrust.from_pepper(b"another service's pepper " * 2)


@dataclass(frozen=True)
class Request:
    """What a replica was asked. `request_id` is the front's, if the front has signed it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    request_id: str | None


@dataclass
class Replica:
    """One replica; `answer` writes the answer to a request, by default which port it is.

    It waits for the body first, unless it does not read bodies.
    """

    trust: FrontTrust = TRUST
    is_draining: bool = False
    is_silent: bool = False
    reads_bodies: bool = True
    context: ssl.SSLContext | None = None
    others: list[str] = field(default_factory=list)
    region: str = ""
    is_ready: bool = True
    is_region_drained: bool = False
    answer: Callable[["Replica", Request, asyncio.StreamWriter], Awaitable[None]] | None = None
    requests: list[Request] = field(default_factory=list)
    num_connections: int = 0
    num_questions: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self, port: int) -> None:
        """Listen on a port of loopback."""
        self.port = port
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1024 * 1024, ssl=self.context)

    async def die(self) -> None:
        """End with all connections, as a killed process does."""
        if self._server is not None:
            await stop_listening(self._server)
        for writer in [*self._writers]:
            writer.transport.abort()
        await asyncio.sleep(0)

    def vanish(self) -> None:
        """Leave the network as a node does that loses its power: nothing that is sent here is acknowledged any more."""
        assert self._server is not None
        for endpoint in [*self._server.sockets, *(writer.get_extra_info("socket") for writer in self._writers)]:
            endpoint.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, _DROP_ALL)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self._writers.add(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._respond(await self._read(reader), writer)
                await writer.drain()
        self._writers.discard(writer)
        writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", "0")) if self.reads_bodies else 0
        body = await reader.readexactly(size)
        request_id = self.trust.request_id_of(headers.get("x-manta-request-id", "").encode())
        return Request(method, path, headers, body, request_id)

    async def _respond(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.path == "/-/healthz":
            write(writer, "503 Service Unavailable" if self.is_draining else "200 OK", b"")
        elif request.path == QUESTION_PATH and self.is_silent:
            write(writer, "503 Service Unavailable", b"")
        elif request.path == QUESTION_PATH:
            self._introduce(request, writer)
        else:
            self.requests.append(request)
            await (self.answer or say_port)(self, request, writer)

    def _introduce(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.num_questions += 1
        nonce = request.headers.get(NONCE_HEADER, "")
        if not is_same(request.headers.get(PROOF_HEADER, ""), self.trust.prove_question(nonce)):
            write(writer, "404 Not Found", b"")
            return
        said = {"port": self.port, "ingresses": self.others, "region": self.region}
        said |= {"is_ready": self.is_ready, "is_drained": self.is_region_drained}
        body = json.dumps(said).encode()
        write(writer, "200 OK", body, f"{PROOF_HEADER}: {self.trust.prove_answer(nonce, body)}\r\n")


def write(writer: asyncio.StreamWriter, status: str, body: bytes, headers: str = "") -> None:
    """Write a whole answer."""
    writer.write(f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body)


async def say_port(replica: Replica, request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with the replica's port."""
    write(writer, "200 OK", str(replica.port).encode())


@asynccontextmanager
async def replicas(*ports: int, **fields: object) -> AsyncIterator[list[Replica]]:
    """Run a replica on each port."""
    running = [Replica(**fields) for _ in ports]  # type: ignore[arg-type]
    try:
        for replica, port in zip(running, ports, strict=True):
            await replica.start(port)
        yield running
    finally:
        for replica in running:
            await replica.die()
