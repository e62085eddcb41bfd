"""A replica whose places are taken, over a real channel: it refuses flex requests, and lets others wait."""

import asyncio

import pytest

from deployments.channel.client import connect
from deployments.channel.errors import ChannelError, Full
from deployments.channel.server import Capacity, ChannelServer
from deployments.replica.server import OperationRunner

USUAL = {"operation": "chat"}
FLEX = {**USUAL, "service_tier": "flex"}


class Waiting:
    """A runner that ends its answers on demand."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def run(self, header, body, reply) -> None:
        reply.write(b"begun")
        await self.go_on.wait()
        reply.end({})


async def test_flex_requests_are_the_first_to_be_refused_and_run_again_once_there_is_a_place(tmp_path):
    runner = Waiting()
    server = ChannelServer(OperationRunner({"chat": runner}, "m", lambda: server.has_waiting), Capacity(2, 1))
    channel = await connect(await server.start("127.0.0.1", str(tmp_path / "replica.sock")), lambda: None)

    async def begin(header):
        stream = channel.open(header, b"")
        return await stream.read(), stream

    try:
        running = [await begin(header) for header in (FLEX, USUAL)]
        with pytest.raises(Full):
            await begin(FLEX)
        running.append(await begin(USUAL))  # It has the only place in the queue.
        with pytest.raises(Full):
            await begin(USUAL)
        assert [pieces for pieces, _ in running] == [[b"begun"]] * 3
        runner.go_on.set()
        for _, stream in running:
            assert await stream.read() == []
        assert (await begin(FLEX))[0] == [b"begun"]
    finally:
        channel.close()
        await server.close()


async def test_an_account_that_fills_a_replica_leaves_another_its_part(tmp_path):
    runner = Waiting()
    capacity = Capacity(2, 4, lambda header: header["account"])
    server = ChannelServer(runner, capacity)
    channel = await connect(await server.start("127.0.0.1", str(tmp_path / "replica.sock")), lambda: None)

    async def begin(account):
        stream = channel.open({"account": account}, b"")
        assert await stream.read() == [b"begun"]
        return stream

    try:
        flood = [await begin("flooder") for _ in range(6)]
        with pytest.raises(Full):
            await begin("flooder")
        others = [await begin("other") for _ in range(3)]  # Half of the six places; three accounts would have two each.
        for account in ("other", "flooder", None):  # Whatever nobody is named for has no part of its own.
            with pytest.raises(Full):
                await begin(account)
        third = [await begin("third") for _ in range(2)]
        with pytest.raises(Full):
            await begin("third")
        runner.go_on.set()
        for stream in flood + others + third:
            assert await stream.read() == []
        assert server.num_ongoing == 0
        await begin("flooder")
    finally:
        channel.close()
        await server.close()


async def test_a_request_without_what_names_its_account_fails_alone(tmp_path):
    runner = Waiting()
    runner.go_on.set()
    server = ChannelServer(runner, Capacity(2, 4, lambda header: header["account"]))
    channel = await connect(await server.start("127.0.0.1", str(tmp_path / "replica.sock")), lambda: None)
    try:
        with pytest.raises(ChannelError, match="could not read"):
            await channel.open({}, b"").read()
        assert await channel.open({"account": "a"}, b"").read() == [b"begun"]
    finally:
        channel.close()
        await server.close()
