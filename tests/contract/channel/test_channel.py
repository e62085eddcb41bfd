"""Both ends of the side channel over real sockets, with a runner that the test scripts."""

import asyncio
import contextlib
import socket
import struct
import time
from dataclasses import replace

import pytest

from deployments.channel import connection, frames
from deployments.channel.client import MAX_UNREAD_BYTES, connect
from deployments.channel.errors import ChannelError, Full, Lost, Refused
from deployments.channel.server import Capacity, ChannelServer
from deployments.patience import USUAL
from tests.waiting import eventually

QUICK = replace(USUAL, silent_s=0.12, hello_s=0.5)


class ScriptedRunner:
    """Does what the header says; notes what was begun and what was cancelled."""

    def __init__(self) -> None:
        self.begun: list[dict] = []
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()

    async def run(self, header, body, reply):
        self.begun.append(header)
        match header["do"]:
            case "echo":
                for position in range(0, len(body), 7):
                    reply.write(body[position : position + 7])
                reply.end({"length": len(body)})
            case "note":
                reply.write(b"", b"before")
                reply.write(b"piece", b"note")
                reply.write(b"without")
                reply.end({"n": 1}, b"last\nline")
            case "wait":
                reply.write(b"first")
                try:
                    await self.go_on.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    if body == b"count":
                        reply.end({"used": 1})
                    raise
                reply.end({})
            case "write":
                await self._write(reply, **header)
            case "refuse":
                raise Refused("not this", "messages", "invalid_value")
            case "break":
                reply.write(b"first")
                raise Lost("gone")
            case "bug":
                raise KeyError(body.decode())

    async def _write(self, reply, num_pieces, size, then_s, **_):
        try:
            for _ in range(num_pieces):
                reply.write(bytes(size))
                await asyncio.sleep(0)
            await asyncio.sleep(then_s)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        reply.end({"n": 1})


@pytest.fixture
async def channel_end(tmp_path):
    runner = ScriptedRunner()
    server = ChannelServer(runner, Capacity(running=2, queued=1), patience=QUICK)
    address = await server.start("127.0.0.1", str(tmp_path / "replica.sock"))
    yield server, runner, address
    await server.close()


async def read_all(stream) -> bytes:
    pieces = []
    while more := await stream.read():
        pieces.extend(more)
    return b"".join(pieces)


@contextlib.asynccontextmanager
async def connected(address, on_lost=lambda: None, patience=QUICK):
    channel = await connect(address, on_lost, patience)
    try:
        yield channel
    finally:
        channel.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_local", [True, False])
async def test_an_answer_comes_back_whole_over_either_socket(channel_end, is_local):
    _, _, address = channel_end
    if not is_local:
        address = {**address, "path": address["path"] + ".elsewhere"}
    body = bytes(range(256)) * 5000
    async with connected(address) as channel:
        streams = [channel.open({"do": "echo", "n": number}, body[number:]) for number in range(2)]
        for number, stream in enumerate(streams):
            assert await read_all(stream) == body[number:]
            assert stream.summary == {"length": len(body) - number}
        assert channel.num_open == 0


async def test_pieces_come_with_their_notes_and_the_last_with_the_end(channel_end):
    _, _, address = channel_end
    async with connected(address) as channel:
        stream = channel.open({"do": "note"}, b"")
        read: list[tuple[bytes, bytes]] = []
        while pieces := await stream.read():
            read += zip(stream.notes, pieces, strict=True)
    assert read == [(b"before", b""), (b"note", b"piece"), (b"", b"without"), (b"", b"last\nline")]
    assert stream.summary == {"n": 1}


async def test_a_refusal_arrives_as_the_error_it_was(channel_end):
    _, _, address = channel_end
    async with connected(address) as channel:
        with pytest.raises(Refused) as caught:
            await channel.open({"do": "refuse"}, b"").read()
    assert (caught.value.message, caught.value.param, caught.value.code) == ("not this", "messages", "invalid_value")


async def test_an_answer_that_breaks_off_yields_what_came_before(channel_end):
    _, _, address = channel_end
    async with connected(address) as channel:
        stream = channel.open({"do": "break"}, b"")
        assert await stream.read() == [b"first"]
        with pytest.raises(Lost):
            await stream.read()


async def test_a_bug_in_the_runner_is_told_without_its_words(channel_end, caplog):
    _, _, address = channel_end
    async with connected(address) as channel:
        with pytest.raises(ChannelError) as caught:
            await channel.open({"do": "bug"}, b"a secret prompt").read()
    assert "secret" not in str(caught.value)
    assert "secret" not in caplog.text
    assert "KeyError" in caplog.text


async def test_work_is_cancelled_when_the_request_is_taken_back(channel_end):
    server, runner, address = channel_end
    async with connected(address) as channel:
        stream = channel.open({"do": "wait"}, b"")
        await stream.read()
        stream.cancel()
        await asyncio.wait_for(runner.cancelled.wait(), 30)
        await stream.wait_end(30)
        assert stream.summary == {}
        assert channel.num_open == 0
    await server.drain(30)
    assert server.num_ongoing == 0


@pytest.mark.parametrize(("num_pieces", "size", "then_s"), [(3, 600_000, 30), (3, 600_000, 0), (40, 900_000, 30)])
async def test_an_answer_that_nobody_reads_is_given_up_and_not_kept(channel_end, num_pieces, size, then_s):
    """Whether it goes on, has ended, or comes faster than that."""
    _, runner, address = channel_end
    async with connected(address, patience=replace(QUICK, unread_s=0.3)) as channel:
        stream = channel.open({"do": "write", "num_pieces": num_pieces, "size": size, "then_s": then_s}, b"")
        if then_s:
            await asyncio.wait_for(runner.cancelled.wait(), 30)
        await asyncio.wait_for(eventually(lambda: stream._error), 30)
        assert not stream._pieces
        with pytest.raises(ChannelError, match="not read in time"):
            await stream.read()
        await stream.wait_end(30)
        assert channel.num_open == 0


async def test_an_answer_that_is_read_in_time_may_be_of_any_size(channel_end):
    _, _, address = channel_end
    async with connected(address, patience=replace(QUICK, unread_s=0.3)) as channel:
        stream = channel.open({"do": "write", "num_pieces": 2, "size": MAX_UNREAD_BYTES, "then_s": 0.6}, b"")
        assert len(await read_all(stream)) == 2 * MAX_UNREAD_BYTES


async def test_last_word_of_work_that_is_taken_back_says_what_was_used(channel_end):
    _, _, address = channel_end
    async with connected(address) as channel:
        stream = channel.open({"do": "wait"}, b"count")
        await stream.read()
        stream.cancel()
        await stream.wait_end(30)
        assert stream.summary == {"used": 1}
        await stream.wait_end(30)  # Said once, known for good.


async def test_nothing_is_left_of_work_that_is_taken_back_before_it_began(channel_end):
    server, _, address = channel_end
    async with connected(address) as channel:
        streams = [channel.open({"do": "wait"}, b"") for _ in range(3)]
        for stream in streams:
            stream.cancel()
        for stream in streams:
            await stream.wait_end(30)
        assert channel.num_open == 0
        assert server.num_ongoing == 0
        assert await read_all(channel.open({"do": "echo"}, b"now")) == b"now"


async def test_work_is_cancelled_when_the_connection_goes(channel_end):
    _, runner, address = channel_end
    channel = await connect(address, lambda: None)
    await channel.open({"do": "wait"}, b"").read()
    channel.close()
    await asyncio.wait_for(runner.cancelled.wait(), 30)


async def test_requests_over_the_bound_are_refused_at_once(channel_end):
    _, runner, address = channel_end
    async with connected(address) as channel:
        waiting = [channel.open({"do": "wait"}, b"") for _ in range(3)]
        for stream in waiting:
            await stream.read()
        with pytest.raises(Full):
            await channel.open({"do": "wait"}, b"").read()
        runner.go_on.set()
        for stream in waiting:
            assert await stream.read() == []
        assert await read_all(channel.open({"do": "echo"}, b"now")) == b"now"


async def test_draining_refuses_what_is_new_and_waits_for_what_runs(channel_end):
    server, runner, address = channel_end
    async with connected(address) as channel:
        running = channel.open({"do": "wait"}, b"")
        await running.read()
        draining = asyncio.create_task(server.drain(600))
        await asyncio.sleep(0)
        with pytest.raises(Full):
            await channel.open({"do": "echo"}, b"").read()
        assert not draining.done()
        runner.go_on.set()
        assert await running.read() == []
        await asyncio.wait_for(draining, 30)


async def test_every_answer_breaks_off_when_the_replica_goes(channel_end):
    server, _, address = channel_end
    lost = asyncio.Event()
    channel = await connect(address, lost.set)
    streams = [channel.open({"do": "wait"}, b"") for _ in range(2)]
    for stream in streams:
        await stream.read()
    await server.close()
    for stream in streams:
        with pytest.raises(Lost):
            await stream.read()
    await asyncio.wait_for(lost.wait(), 30)
    with pytest.raises(Lost):
        channel.open({"do": "echo"}, b"")


async def test_a_connection_without_the_secret_is_closed_and_runs_nothing(channel_end):
    _, runner, address = channel_end
    channel = await connect({**address, "secret": "wrong"}, lambda: None)
    with pytest.raises(Lost):
        await channel.open({"do": "echo"}, b"x").read()
    assert runner.begun == []


@pytest.mark.parametrize("sent", [b"", b"\x40\0", frames.render_frame(0, frames.HELLO, b"x" * 64)[:-1]])
async def test_a_connection_that_sends_no_secret_in_time_is_closed(channel_end, sent):
    _, _, address = channel_end
    async with connected(address) as channel:
        reader, writer = await asyncio.open_connection(address["host"], address["port"])
        writer.write(sent)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        assert await read_all(channel.open({"do": "echo"}, b"still there")) == b"still there"


async def test_a_connection_may_announce_no_more_than_the_secret_before_it(channel_end):
    _, _, address = channel_end
    for path in (None, address["path"]):
        opened = (
            asyncio.open_unix_connection(path) if path else asyncio.open_connection(address["host"], address["port"])
        )
        reader, writer = await opened
        writer.write(struct.pack("<IIB", 65, 0, frames.HELLO))
        before = time.monotonic()
        assert await asyncio.wait_for(reader.read(), 5) == b""
        assert time.monotonic() - before < QUICK.hello_s
        writer.close()


async def test_garbage_closes_the_connection_and_nothing_else(channel_end):
    _, runner, address = channel_end
    reader, writer = await asyncio.open_unix_connection(address["path"])
    writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    async with connected(address) as channel:
        assert await read_all(channel.open({"do": "echo"}, b"still here")) == b"still here"
    assert len(runner.begun) == 1


async def test_connect_raises_when_nobody_listens(channel_end):
    server, _, address = channel_end
    await server.close()
    with pytest.raises(Lost):
        await connect({**address, "path": address["path"] + ".gone"}, lambda: None)


async def test_a_socket_that_someone_left_behind_on_this_node_is_passed_by(channel_end, tmp_path) -> None:
    _, _, address = channel_end
    left_behind = str(tmp_path / "left-behind.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(left_behind)
    channel = await connect({**address, "path": left_behind}, lambda: None, QUICK)
    assert await read_all(channel.open({"do": "echo"}, b"over TCP")) == b"over TCP"
    channel.close()


async def test_a_closed_server_leaves_no_socket_behind(channel_end):
    server, _, address = channel_end
    await server.close()
    with pytest.raises(FileNotFoundError):
        await asyncio.open_unix_connection(address["path"])


@pytest.fixture
async def link(channel_end):
    """A TCP connection over a link that can be cut without a word."""
    _, _, address = channel_end
    is_up = asyncio.Event()
    is_up.set()
    pumps = set()

    async def pump(reader, writer):
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(65536):
                    await is_up.wait()
                    writer.write(data)
        finally:
            writer.transport.abort()

    async def relay(reader, writer):
        far_reader, far_writer = await asyncio.open_connection(address["host"], address["port"])
        for ends in ((reader, far_writer), (far_reader, writer)):
            pumps.add(asyncio.create_task(pump(*ends)))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield is_up, {**address, "path": address["path"] + ".elsewhere", "port": port}
    server.close()
    for task in pumps:
        task.cancel()
    await asyncio.gather(*pumps, return_exceptions=True)
    await asyncio.sleep(0.01)  # Until the sockets are closed.


async def test_both_ends_notice_a_link_that_is_cut_without_a_word(channel_end, link):
    server, runner, _ = channel_end
    is_up, address = link
    lost = asyncio.Event()
    channel = await connect(address, lost.set, QUICK)
    stream = channel.open({"do": "wait"}, b"")
    assert await stream.read() == [b"first"]
    is_up.clear()
    with pytest.raises(Lost):
        await asyncio.wait_for(stream.read(), 30)
    await asyncio.wait_for(runner.cancelled.wait(), 30)
    await asyncio.wait_for(lost.wait(), 30)
    await server.drain(30)
    assert server.num_ongoing == 0


async def test_a_quiet_connection_stays_open_also_when_the_event_loop_stands_still(channel_end, link):
    _, runner, _ = channel_end
    _, address = link
    async with connected(address) as channel:
        stream = channel.open({"do": "wait"}, b"")
        await stream.read()
        for _ in range(3):
            await asyncio.sleep(QUICK.silent_s / 2)
            time.sleep(QUICK.silent_s * 3)  # noqa: ASYNC251  # The loop stands still.
        await asyncio.sleep(QUICK.silent_s * 3)
        runner.go_on.set()
        assert await stream.read() == []


async def test_a_process_that_sends_no_pings_is_not_given_up(channel_end, link, monkeypatch):
    monkeypatch.setattr(connection.Heartbeat, "note_ping", lambda self: None)  # As if none came.
    _, runner, _ = channel_end
    is_up, address = link
    async with connected(address) as channel:
        stream = channel.open({"do": "wait"}, b"")
        await stream.read()
        is_up.clear()
        await asyncio.sleep(QUICK.silent_s * 3)
        is_up.set()
        runner.go_on.set()
        assert await stream.read() == []


async def test_what_runs_when_the_replica_stops_breaks_off_and_does_not_look_complete(channel_end):
    server, _, address = channel_end
    async with connected(address) as channel:
        stream = channel.open({"do": "wait"}, b"count")
        await stream.read()
        await server.close()
        with pytest.raises(Lost):
            await stream.read()
