"""The coding agents' programs, and the place that each test has for one of them."""

from dataclasses import replace

import pytest

from tests.contract.http.agents.places import prepare
from tests.contract.http.conftest import serve
from tests.contract.http.node import agents, more_agents
from tests.contract.http.python_clients import aider, python

__all__ = ["agents", "aider", "more_agents", "python"]


@pytest.fixture
async def place(world, tmp_path):
    """A home for an agent, with a service behind a real server."""
    world.chat.card = replace(world.chat.card, max_model_len=200_000)
    world.principal(tokens_per_minute=100_000_000)
    async with serve(world.app(), ws="websockets-sansio") as address:
        yield prepare(tmp_path, address)
