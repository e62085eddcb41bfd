"""A replica that is killed once it has stored a response, before it answers."""

import asyncio
import os
import signal
from pathlib import Path

import orjson

from deployments.state.responses.store import ResponseStore
from tests.contract.http.answers import said
from tests.contract.http.background_calls import behind_a_front
from tests.contract.http.conftest import world_over
from tests.contract.http.response_calls import script
from tests.contract.http.stored import open_responses
from tests.twins.gatekeeper import TestClock

_save = ResponseStore.save


async def _save_and_die(*args, **kwargs):
    await _save(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)


def answer(database_url: str, body: bytes) -> None:
    """Answer the request as far as it comes."""
    asyncio.run(_answer(database_url, body))


async def _answer(database_url: str, body: bytes) -> None:
    ResponseStore.save = _save_and_die  # type: ignore[method-assign]
    clock = TestClock()
    async with open_responses(database_url, Path(), clock) as stored:
        world = world_over(clock, stored)
        script(world, said("The ", "first ", "try."))
        await behind_a_front(world).post("/v1/responses", json=orjson.loads(body))
