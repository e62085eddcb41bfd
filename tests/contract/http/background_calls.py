"""Responses that are tried again: an engine that waits, a runner that is killed, and what became of it all."""

import asyncio
import hmac
from typing import Any

import httpx2

from deployments.proof import REQUEST_ID_HEADER, FrontTrust
from serve_app.front.middleware import FrontMiddleware
from tests.contract.http.answers import SECRET, USAGE, pieces, said
from tests.twins.engine import Script
from tests.twins.legal import split


def held(*words: str) -> tuple[asyncio.Event, Any]:
    """Return an event, and the script of an engine that waits for it before its last word."""
    release = asyncio.Event()

    def script(request):
        *first, last, end = pieces(request, said(*words))
        return Script([*first, release, last, end], USAGE)

    return release, script


def behind_a_front(world) -> httpx2.AsyncClient:
    """Return a client of a replica of its own; the front has given all its requests the same id."""
    request_id, trust = "req_" + "0a" * 16, FrontTrust.from_pepper(b"p" * 32)
    signature = hmac.digest(trust.request_key, request_id.encode(), "sha256").hex()
    transport = httpx2.ASGITransport(app=FrontMiddleware(world.app(), trust, list))
    headers = {"authorization": f"Bearer {SECRET}", REQUEST_ID_HEADER: f"{request_id} {signature}"}
    return httpx2.AsyncClient(transport=transport, base_url="http://manta.test", headers=headers)


async def ended(responses, response_id):
    for _ in range(500):
        response = await responses.retrieve(response_id)
        if response.status not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.01)
    raise AssertionError(f"{response.status}: not ended")


async def events_of(world, response_id, after=-1):
    async with world.http() as http:
        answer = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after={after}")
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def kill(world, runner):
    """End a runner as kill -9 would: it writes nothing more and lets nothing go."""
    tasks = list(runner._tasks)
    runner._store = _Gone()
    for running in runner._running.values():
        running.store = _Gone()
    for _ in range(2):  # The first asks to leave in peace.
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    world.clock.advance(world.timing.lease_s)


class _Gone:
    def __getattr__(self, name):
        raise OSError("This process is dead.")


async def taken_over(world):
    """Return responses of an application that looks for responses whose runner is gone."""
    other = world.client()
    world.runners[-1].watch()
    return other.responses
