"""How fast the client itself is, against a server that costs next to nothing: `python -m tests.tools.bench.ceiling`.

The server answers every request with a prepared stream of 64 tokens, a write for each, and usage: either as fast as it
can, or at an engine's pace, so that each token is a read of its own for the client.
"""

import asyncio
import socket
import subprocess
import sys
import time
from typing import cast

import uvloop

from tests.tools.bench.load import ClosedLoop
from tests.tools.bench.measure import own_cpu_s
from tests.tools.bench.prompts import Shape, Target, create_requests

NUM_CHUNKS = 64
PACE_S = 0.005


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


class CheapServer(asyncio.Protocol):
    """Streams the same answer to every request on a connection, with some seconds between two tokens."""

    def __init__(self, pace_s: float) -> None:
        self.pace_s = pace_s

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
            if self.pace_s:
                asyncio.get_running_loop().call_later(self.pace_s, self.write_token)
            else:
                asyncio.get_running_loop().call_soon(self.write_token)
        else:
            self.transport.write(END)


async def serve(port: int, pace_s: float) -> None:
    """Serve on a local port until cancelled."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: CheapServer(pace_s), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


def measure_ceiling(pace_s: float, clients: int, num: int) -> str:
    """Return a line on how the client did against a server of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "tests.tools.bench.ceiling", str(port), str(pace_s)])
    try:
        wait_until_open(port)
        target = Target("127.0.0.1", port, "ceiling")
        requests = create_requests(target, Shape(8, NUM_CHUNKS, is_stream=True), num, "ceiling")
        before, began = own_cpu_s(), time.perf_counter()
        samples = uvloop.run(ClosedLoop(target, requests, clients).run())
        took_s, cpu_s = time.perf_counter() - began, own_cpu_s() - before
    finally:
        server.kill()
        server.wait()
    errors = sum(sample.error is not None for sample in samples)
    return (
        f"{pace_s * 1000:.0f} ms between tokens, {clients} clients: {num / took_s:.0f} streams/s, "
        f"{cpu_s / num / NUM_CHUNKS * 1e6:.1f} ms of client CPU per 1,000 tokens, "
        f"{cpu_s / took_s:.0%} of a core, {errors} errors"
    )


def wait_until_open(port: int) -> None:
    """Wait until something listens on a local port."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens on port {port}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [port, pace_s]:
            uvloop.run(serve(int(port), float(pace_s)))
        case _:
            print(measure_ceiling(0.0, 64, 6000))
            print(measure_ceiling(PACE_S, 64, 1500))
