"""One agent, without HAProxy: who is silent must not hold up what is done about the others."""

import asyncio
import socket
from dataclasses import replace

import pytest

from serve_app.front.agent import Agent
from tests.contract.front.replicas import replicas
from tests.contract.front.running import QUICK, prepared_front

MAX_ROUNDS = 100
TIMINGS = replace(QUICK, answer_s=60.0, hear_s=0.05)


async def test_rounds_go_on_while_a_replica_and_another_front_are_silent() -> None:
    async with prepared_front() as unknown:
        hung, living = unknown.replica_ports[:2]
        with socket.create_server(("127.0.0.1", hung)) as silent:  # It takes connections, and never answers.
            seeds = (f"127.0.0.1:{hung}",)
            async with (
                prepared_front(min_port=hung, max_port=living, seeds=seeds, timings=TIMINGS) as front,
                replicas(living),
            ):
                agent = Agent(front.settings)
                num_rounds = 0
                while {address.port for address in agent.table.addresses()} != {living}:
                    await asyncio.to_thread(agent.round)
                    num_rounds += 1
                    assert num_rounds < MAX_ROUNDS
                questions = [silent.accept()[0] for _ in range(2)]
                for question in questions:
                    assert question.recv(65_536).startswith(b"GET ")
                    with pytest.raises(BlockingIOError):  # Both still wait for their answers.
                        question.recv(1, socket.MSG_DONTWAIT)
                    question.close()
