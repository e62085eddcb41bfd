"""Streams through a real server: when bytes arrive, what a departure does, what a slow or large body meets."""

import asyncio
import gzip

import httpx2
import openai
import orjson
import pytest

from deployments.models.contract.engine import Usage
from serve_app.http.body_limits import BodyLimits
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.conftest import serve
from tests.twins.engine import Script
from tests.waiting import eventually

MESSAGES = [{"role": "user", "content": "Say hello."}]
CHAT = {"model": MODEL, "messages": MESSAGES}


@pytest.fixture
async def client(live):
    async with openai.AsyncOpenAI(api_key=SECRET, base_url=live + "/v1", max_retries=0) as client:
        yield client


async def test_first_piece_arrives_while_the_engine_still_runs(world, client):
    release = asyncio.Event()

    def script(request):
        first, *rest = pieces(request, said("One", "two"))
        return Script([first, release, *rest], USAGE)

    world.chat.script = script
    stream = await client.chat.completions.create(**CHAT, stream=True)
    told = stream.response.headers
    assert told["content-type"] == "text/event-stream; charset=utf-8"
    assert told["cache-control"] == "no-cache"
    assert told["x-accel-buffering"] == "no"
    assert told["x-request-id"].startswith("req_")
    assert told["x-ratelimit-limit-requests"] == "1000"
    chunks = aiter(stream)
    assert (await anext(chunks)).choices[0].delta.role == "assistant"
    assert (await anext(chunks)).choices[0].delta.content == "One"
    assert not world.chat.streams[0].is_complete
    release.set()
    assert [c.choices[0].delta.content async for c in chunks] == ["two", None]


async def test_status_waits_for_the_first_piece(world, live):
    hold = asyncio.Event()
    world.chat.script = lambda request: Script([hold, *pieces(request, said("x"))])
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}) as http:
        asked = asyncio.create_task(http.post(live + "/v1/chat/completions", json={**CHAT, "stream": True}))
        await eventually(lambda: world.chat.streams and world.chat.streams[0].started.is_set())
        assert not asked.done()
        hold.set()
        assert (await asked).status_code == 200


ASKS = {
    "chat/completions": {**CHAT, "max_tokens": 700},
    "completions": {"model": CHAT["model"], "prompt": "Say hello.", "max_tokens": 700},
    "responses": {"model": CHAT["model"], "input": "Say hello.", "max_output_tokens": 700},
}


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
async def test_departure_aborts_the_generation_at_once(world, live, is_stream, steps, path):
    never = asyncio.Event()

    def script(request):
        made = pieces(request, said("a", "b", "c"))
        return Script([*made[:steps], never], usage_when_aborted=Usage(9, 2))

    world.chat.script = script
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}) as http:
        asked = asyncio.create_task(http.post(f"{live}/v1/{path}", json={**ASKS[path], "stream": is_stream}))
        await eventually(lambda: world.chat.streams and world.chat.streams[0].started.is_set())
        asked.cancel()
        await asyncio.wait([asked])
    stream = world.chat.streams[0]
    await asyncio.wait_for(stream.ended.wait(), 30)
    await eventually(lambda: world.log.records)
    assert stream.is_aborted
    record = world.log.records[0]
    assert record.status == 499
    assert record.completion_tokens == 2
    quota = world.gatekeeper.quota(world.gatekeeper.principals[SECRET])
    assert quota.remaining_tokens == 1_000_000 - 11
    assert len(world.gatekeeper.settled) == 1


async def test_departure_after_the_answer_changes_nothing(world, client):
    await client.chat.completions.create(**CHAT)
    await eventually(lambda: world.log.records)
    assert world.log.records[0].status == 200
    assert not world.chat.streams[0].is_aborted


async def test_piece_with_several_events_is_written_whole(world, live):
    piece = b"".join(b'data: {"choices":[],"n":%d}\n\n' % number for number in range(500))
    world.chat.script = lambda request: Script([piece, b"data: [DONE]\n\n"])
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}) as http:
        told = await http.post(live + "/v1/chat/completions", json={**CHAT, "stream": True})
    assert told.content == piece + b"data: [DONE]\n\n"


async def test_many_streams_run_side_by_side(world, client):
    async def ask():
        stream = await client.chat.completions.create(**CHAT, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert set(await asyncio.gather(*(ask() for _ in range(100)))) == {"Hello there!"}
    await eventually(lambda: len(world.gatekeeper.settled) == 100)


async def exchange(address, *sent, pause=0.0):
    """Send raw bytes, a pause after each; return all that comes back."""
    host, port = address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for part in sent:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def head(*lines, version="1.1"):
    return "\r\n".join(
        [f"POST /v1/chat/completions HTTP/{version}", "host: x", f"authorization: Bearer {SECRET}", *lines, "", ""]
    ).encode()


def error_in(raw, status):
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d" % status), raw
    assert b"x-request-id: req_" in head
    assert b"connection: close" in head
    return orjson.loads(body)["error"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_of_http_1_0_gets_no_chunks(live, stream):
    body = orjson.dumps({**CHAT, "stream": stream})
    answer = await exchange(live, head(f"content-length: {len(body)}", version="1.0"), body)
    top, _, content = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in top.lower()
    assert f"content-length: {len(content)}".encode() in top.lower()
    assert content.startswith(b"data: {") and content.endswith(b"data: [DONE]\n\n") if stream else orjson.loads(content)


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "identity, br"])
async def test_a_compressed_body_is_refused_by_name(live, encoding):
    body = gzip.compress(orjson.dumps(CHAT))
    lines = f"content-length: {len(body)}", f"content-encoding: {encoding}", "connection: close"
    raw = await exchange(live, head(*lines), body)
    error = error_in(raw, 415)
    assert error["code"] == "unsupported_media_type"
    assert encoding in error["message"]
    assert b"accept-encoding: identity" in raw


async def test_body_declared_too_large_is_413_before_any_of_it(world):
    world.bounds = BodyLimits(max_bytes=1000)
    async with serve(world.app()) as address:
        error = error_in(await exchange(address, head("content-length: 1001")), 413)
    assert error["type"] == "invalid_request_error"
    assert "1000 bytes" in error["message"]


async def test_body_that_grows_too_large_is_413_before_the_rest(world):
    world.bounds = BodyLimits(max_bytes=1000)
    chunk = b"320\r\n" + b"x" * 800 + b"\r\n"
    async with serve(world.app()) as address:
        error_in(await exchange(address, head("transfer-encoding: chunked"), chunk, chunk), 413)


async def test_body_that_comes_too_slowly_is_408(world):
    world.bounds = BodyLimits(grace_s=0.1, min_bytes_per_s=1e9)
    async with serve(world.app()) as address:
        error = error_in(await exchange(address, head("content-length: 99"), b'{"model":', pause=0.01), 408)
    assert error["type"] == "invalid_request_error"
    assert not world.chat.requests
    assert world.log.records[0].status == 408


async def test_body_that_comes_slowly_but_steadily_is_taken(world):
    world.bounds = BodyLimits(grace_s=0.5, min_bytes_per_s=1.0)
    body = orjson.dumps(CHAT)
    parts = [body[start : start + 8] for start in range(0, len(body), 8)]
    async with serve(world.app()) as address:
        raw = await exchange(address, head(f"content-length: {len(body)}", "connection: close"), *parts, pause=0.06)
    assert raw.startswith(b"HTTP/1.1 200")


async def test_refusal_does_not_wait_for_the_body(world):
    async with serve(world.app()) as address:
        host, port = address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head("content-length: 900000").replace(SECRET.encode(), b"sk-x"))
        raw = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        writer.close()
    assert raw.startswith(b"HTTP/1.1 401")
