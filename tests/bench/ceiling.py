"""A server that costs next to nothing, to find out how fast the client itself is: `python -m tests.bench.ceiling PORT`.

It answers every chat request at once with a prepared stream of 64 chunks, one write each, and usage.
"""

import asyncio
import sys
from typing import cast

import uvloop

NUM_CHUNKS = 64


def chunk(payload: bytes) -> bytes:
    """Return one event as a chunk of a chunked body."""
    event = b"data: " + payload + b"\n\n"
    return f"{len(event):x}".encode() + b"\r\n" + event + b"\r\n"


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = chunk(
    b'{"id":"chatcmpl-0123456789abcdef","object":"chat.completion.chunk","created":1700000000,"model":"ceiling",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}'
)
END = (
    chunk(b'{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":64,"total_tokens":94}}')
    + chunk(b"[DONE]")
    + b"0\r\n\r\n"
)


class InstantServer(asyncio.Protocol):
    """Streams the same answer to every request on a connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.left = 0
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, separator, body = self.buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer = body[length:]
        self.transport.write(HEAD)
        self.left = NUM_CHUNKS
        asyncio.get_running_loop().call_soon(self.write_token)

    def write_token(self) -> None:
        """Write one token and come back for the next, as an engine would: never many in one write."""
        if self.transport.is_closing():
            return
        if self.left:
            self.left -= 1
            self.transport.write(TOKEN)
            asyncio.get_running_loop().call_soon(self.write_token)
        else:
            self.transport.write(END)


async def serve(port: int) -> None:
    """Serve on a local port until cancelled."""
    server = await asyncio.get_running_loop().create_server(InstantServer, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
