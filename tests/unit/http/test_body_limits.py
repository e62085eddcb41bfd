"""Bodies that are too large or too slow, and the memory of large ones."""

import asyncio

import pytest

from serve_app.errors.api import BodyTooLarge, ReceiveTimeout
from serve_app.http.body_limits import LARGE_BYTES, BodyLimitMiddleware, BodyLimits
from tests.unit.http.asgi import Server, body, scope


async def read(scope, receive, send):
    while (await receive()).get("more_body"):
        continue


def bounded(**bounds):
    return BodyLimitMiddleware(read, bounds=BodyLimits(**bounds))


@pytest.mark.parametrize("declared", [b"11", b"9" * 20, b"9" * 5000])
async def test_declared_body_is_refused_before_it_is_received(declared):
    server = Server()
    with pytest.raises(BodyTooLarge, match="limit of 10 bytes"):
        await bounded(max_bytes=10)(scope(headers=[(b"content-length", declared)]), server.receive, server.send)


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"nonsense")], [(b"content-length", b"10")]])
async def test_growing_body_is_refused_when_it_passes_the_limit(headers):
    server = Server(body(b"x" * 6, more=True), body(b"x" * 5, more=True), body(b"x"))
    with pytest.raises(BodyTooLarge):
        await bounded(max_bytes=10)(scope(headers=headers), server.receive, server.send)
    assert len(server.messages) == 1


async def test_body_at_the_limit_is_taken():
    server = Server(body(b"x" * 5, more=True), body(b"x" * 5))
    await bounded(max_bytes=10)(scope(), server.receive, server.send)
    assert not server.messages


async def test_body_that_stops_coming_is_refused():
    server = Server(body(b"x", more=True))
    with pytest.raises(ReceiveTimeout):
        await bounded(grace_s=0.0, min_bytes_per_s=1e6)(scope(), server.receive, server.send)


async def test_arrived_bytes_buy_time():
    async def app(scope, receive, send):
        await receive()
        await asyncio.wait_for(receive(), 0.02)

    server = Server(body(b"x" * 100, more=True))
    with pytest.raises(TimeoutError):
        await BodyLimitMiddleware(app, bounds=BodyLimits(grace_s=0.01, min_bytes_per_s=0.1))(
            scope(), server.receive, server.send
        )


@pytest.mark.parametrize(("num_bytes", "times"), [(LARGE_BYTES - 1, 0), (LARGE_BYTES, 1)])
async def test_memory_is_given_back_after_a_large_body_and_no_other(monkeypatch, num_bytes, times):
    given_back = []

    async def give_back():
        given_back.append(True)

    monkeypatch.setattr("serve_app.http.body_limits.give_back_memory", give_back)
    server = Server(body(b"x" * (num_bytes - 1), more=True), body(b"x"))
    await bounded(max_bytes=2 * LARGE_BYTES)(scope(), server.receive, server.send)
    assert len(given_back) == times


async def test_nothing_is_bounded_once_the_body_is_complete():
    seen = []

    async def app(scope, receive, send):
        seen.extend([await receive(), await receive()])

    server = Server(body(b"x"), {"type": "http.disconnect"})
    await BodyLimitMiddleware(app, bounds=BodyLimits(grace_s=-1.0))(scope(), _instant(server), server.send)
    assert [message["type"] for message in seen] == ["http.request", "http.disconnect"]


def _instant(server):
    async def receive():
        return server.messages.pop(0)

    return receive
