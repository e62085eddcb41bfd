"""What a connection that was reset leaves behind in a real uvicorn server."""

import asyncio
import gc
import socket
import struct
import weakref
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from serve_app.http.connections import end_timers_of_lost_connections
from tests.waiting import eventually

NUM_REQUESTS = 5
RESET = struct.pack("ii", 1, 0)


class Marker:
    """Held by a request, as long as anything holds the request."""


async def ask_and_reset(port: int) -> None:
    """Make a request over a connection that could go on, and reset it after the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
    await reader.readuntil(b"\r\n\r\nok")
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.close()


async def num_held(wait_s: float) -> int:
    """Return how many requests a server still holds some seconds after their connections were reset."""
    held: list[weakref.ref[Marker]] = []

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        scope["marker"] = marker = Marker()
        held.append(weakref.ref(marker))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(app, port=0, lifespan="off", log_config=None, timeout_keep_alive=60)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    for _ in range(NUM_REQUESTS):
        await ask_and_reset(port)
    await eventually(lambda: len(held) == NUM_REQUESTS and not server.server_state.connections)
    with suppress(TimeoutError):
        await eventually(lambda: not _num_alive(held), wait_s)
    server.should_exit = True
    await serving
    return _num_alive(held)


def _num_alive(held: list[weakref.ref[Marker]]) -> int:
    gc.collect()
    return sum(one() is not None for one in held)


async def test_a_connection_that_was_reset_holds_its_request_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AutoHTTPProtocol, "connection_lost", AutoHTTPProtocol.connection_lost)  # To be put back.
    assert await num_held(wait_s=0.2) == NUM_REQUESTS, "uvicorn cancels the timers itself: keep_alive can go"
    end_timers_of_lost_connections()
    end_timers_of_lost_connections()
    assert await num_held(wait_s=10) == 0
