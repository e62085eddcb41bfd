"""Who is refused by a replica whose places are taken: a flex request, which would have to wait, and nobody else."""

import pytest

from deployments.channel.errors import Full
from deployments.channel.server import Capacity, ChannelServer
from deployments.replica.server import OperationRunner


class Recorded:
    """A runner that notes what it runs."""

    def __init__(self) -> None:
        self.ran: list[object] = []

    async def run(self, header, body, reply) -> None:
        self.ran.append(header.get("service_tier"))


@pytest.mark.parametrize(("num_ongoing", "is_refused"), [(1, False), (2, False), (3, True), (9, True)])
async def test_a_flex_request_runs_only_where_it_has_a_place_at_once(num_ongoing, is_refused):
    runner = Recorded()
    operations = OperationRunner({"chat": runner}, "m", lambda: server.has_waiting)
    server = ChannelServer(operations, Capacity(2, 8))
    server.num_ongoing = num_ongoing
    flex = {"operation": "chat", "service_tier": "flex"}
    if is_refused:
        with pytest.raises(Full):
            await operations.run(flex, b"", None)
    else:
        await operations.run(flex, b"", None)
    for tier in ({}, {"service_tier": "priority"}):
        await operations.run({"operation": "chat", **tier}, b"", None)
    assert runner.ran == ([] if is_refused else ["flex"]) + [None, "priority"]
