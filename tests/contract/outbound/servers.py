"""Servers on loopback, written by hand, that do what a real one would never do."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """A server, what it was asked, and how many connections there have been."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    num_connections: int = 0

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]


@asynccontextmanager
async def serving(answer: Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """A server that answers each connection's requests with what `answer` writes, until it closes the connection."""
    server = Server()

    async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server.num_connections += 1
        try:
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                server.heads.append(head)
                await answer(head.split(" ")[1], writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(_serve, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def answer_of(content: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """Return the bytes of an answer; an underscore in a header's name is a hyphen."""
    given = {"content-length": str(len(content)), "content-type": "text/plain"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
