"""One agent, without HAProxy: who is silent must not hold up what is done about the others."""

import asyncio
import socket
import time

from serve_app.front.agent import Agent
from tests.contract.front.replicas import replicas
from tests.contract.front.running import prepared_front


async def test_rounds_go_on_while_a_replica_and_another_front_are_silent() -> None:
    async with prepared_front() as unknown:
        hung, living = unknown.replica_ports[:2]
        with socket.create_server(("127.0.0.1", hung)):  # It takes connections, and never answers.
            async with (
                prepared_front(min_port=hung, max_port=living, seeds=(f"127.0.0.1:{hung}",)) as front,
                replicas(living),
            ):
                agent = Agent(front.settings)
                began = time.monotonic()
                for _ in range(4):
                    await asyncio.to_thread(agent.round)
                assert time.monotonic() - began < 2.0  # A question waits so long for its answer.
                assert {address.port for address in agent.table.addresses()} == {living}
