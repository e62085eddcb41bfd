"""The real HAProxy with the options that Ray Serve gives it, started by `manta-haproxy`."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.waiting import eventually

CONFIG = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option abortonclose
    option splice-request
    option splice-response
    option http-no-delay
    option idle-close-on-response
    errorfile 502 {error_file}
    errorfile 503 {error_file}
frontend front
    bind 127.0.0.1:{port}
    default_backend back
backend back
    http-reuse always
    server replica 127.0.0.1:{replica_port}
"""
PROGRAM = Path(sys.executable).with_name("manta-haproxy")


@asynccontextmanager
async def haproxy(folder: Path, replica_port: int) -> AsyncIterator[int]:
    """Run HAProxy before a replica; yield the port."""
    error_file = folder / "500.http"
    error_file.write_bytes(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno")
    port = free_port()
    config = folder / "haproxy.cfg"
    config.write_text(CONFIG.format(error_file=error_file, port=port, replica_port=replica_port))
    environment = {**os.environ, "RAY_SERVE_HAPROXY_BINARY_PATH": str(PROGRAM)}
    process = await asyncio.create_subprocess_exec(PROGRAM, "-db", "-f", config, env=environment)
    try:
        await eventually(lambda: answers(port), 30)
        yield port
    finally:
        process.terminate()
        await process.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("segments", [1, 2])
async def test_replica_learns_that_the_client_of_a_whole_answer_has_left(tmp_path: Path, segments: int) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        asked.set()
        with suppress(ConnectionError):
            await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(replica, "127.0.0.1", 0)
    async with server, haproxy(tmp_path, server.sockets[0].getsockname()[1]) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"a":{}}'
        head = b"POST / HTTP/1.1\r\nhost: manta.test\r\ncontent-length: %d\r\n\r\n" % len(body)
        for segment in [head + body] if segments == 1 else [head, body]:
            writer.write(segment)
            await writer.drain()
            await asyncio.sleep(0.2)
        await asyncio.wait_for(asked.wait(), 10)
        assert not left.is_set()
        writer.close()
        await asyncio.wait_for(left.wait(), 10)


async def test_what_haproxy_answers_by_itself_looks_like_every_other_error(tmp_path: Path) -> None:
    async with haproxy(tmp_path, free_port()) as port:
        assert_is_told_to_retry(await ask(port))


async def test_client_is_told_when_the_replica_dies_with_its_request(tmp_path: Path) -> None:
    """The replica ends in the middle of the second request, with all of its connections, as a killed one does."""
    num_asked = 0

    async def replica(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_asked
        with suppress(asyncio.IncompleteReadError):
            while num_asked < 2:
                await reader.readuntil(b"\r\n\r\n")
                num_asked += 1
                if num_asked == 1:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        writer.transport.abort()

    server = await asyncio.start_server(replica, "127.0.0.1", 0)
    async with server, haproxy(tmp_path, server.sockets[0].getsockname()[1]) as port:
        assert (await ask(port, closes=True)).startswith(b"HTTP/1.1 200 OK")
        assert_is_told_to_retry(await ask(port))
    assert num_asked == 2


async def ask(port: int, *, closes: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = b"connection: close\r\n" if closes else b""
    writer.write(b"GET /v1/models HTTP/1.1\r\nhost: manta.test\r\n" + connection + b"\r\n")
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


def assert_is_told_to_retry(answer: bytes) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 503 Service Unavailable"
    assert "retry-after: 1" in lines
    assert "content-type: application/json" in lines
    assert f"content-length: {len(body)}" in lines
    assert json.loads(body)["error"].keys() == {"message", "type", "param", "code"}
    assert json.loads(body)["error"]["type"] == "server_error"
