"""A replica whose places are taken, over a real channel: it refuses flex requests, and lets others wait."""

import asyncio

import pytest

from deployments.channel.client import connect
from deployments.channel.errors import Full
from deployments.channel.server import Capacity, ChannelServer
from deployments.replica.server import OperationRunner

USUAL = {"operation": "chat"}
FLEX = {**USUAL, "service_tier": "flex"}


class Waiting:
    """A runner that ends its answers when it is told to."""

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
