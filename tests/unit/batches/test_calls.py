"""Lines on their way to a model: when they count as taken, and let more in."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from batch.calls import LineCalls
from batch.concurrency import ConcurrencyLimiter
from deployments.models.contract.engine import Summary
from deployments.models.contract.errors import Overloaded
from serve_app.schemas.chat import ChatRequest
from serve_app.validation.batch_lines import BatchRequest
from tests.twins.keys import principal_of_key

URL = "/v1/chat/completions"
PRINCIPAL = principal_of_key(account="acct")
REQUEST = BatchRequest("one", {"model": "m", "messages": [{"role": "user", "content": "hi"}]})


class Model:
    """Answers when it may; refuses the first `refuses` lines."""

    def __init__(self, refuses: int = 0) -> None:
        self.summary = Summary()
        self.may_answer = asyncio.Event()
        self._refuses = refuses

    def cost(self, *_: object) -> Any:
        return SimpleNamespace(model="m")

    def run(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._refuses:
            self._refuses -= 1
            raise Overloaded("full", retry_after_s=0.0)
        await self.may_answer.wait()
        yield b"{}"

    async def aclose(self) -> None:
        pass


def send(model: Model, limiter: ConcurrencyLimiter) -> asyncio.Task[Any]:
    operation: Any = SimpleNamespace(name="chat", schema=ChatRequest, cost=model.cost, run=model.run)
    calls = LineCalls({URL: operation}, limiter, priority=10)
    return asyncio.create_task(calls.run(0, REQUEST, URL, PRINCIPAL, "batch_1"))


@pytest.fixture
async def limiter() -> ConcurrencyLimiter:
    return ConcurrencyLimiter(64)


async def test_a_line_that_no_replica_refuses_lets_another_in_long_before_its_answer(
    limiter: ConcurrencyLimiter,
) -> None:
    model = Model()
    sent = send(model, limiter)
    async with asyncio.timeout(10):
        while limiter.limit == 32:  # noqa: ASYNC110 - a real wait ends it.
            await asyncio.sleep(0.01)
    assert not sent.done()
    model.may_answer.set()
    assert not (await sent).outcome.is_failed
    assert limiter.limit == 33


async def test_a_line_that_is_answered_at_once_lets_another_in_too(limiter: ConcurrencyLimiter) -> None:
    model = Model()
    model.may_answer.set()
    await send(model, limiter)
    assert limiter.limit == 33
    await asyncio.sleep(0.1)
    assert limiter.limit == 33


async def test_a_line_that_is_refused_lets_none_in_before_it_is_taken(limiter: ConcurrencyLimiter) -> None:
    model = Model(refuses=2)
    model.may_answer.set()
    sent = send(model, limiter)
    await sent
    assert limiter.limit == 15  # Twice a third less, and one in some twenty more.


async def test_a_line_that_is_given_up_lets_none_in(limiter: ConcurrencyLimiter) -> None:
    sent = send(Model(), limiter)
    await asyncio.sleep(0)
    sent.cancel()
    await asyncio.gather(sent, return_exceptions=True)
    await asyncio.sleep(0.1)
    assert limiter.limit == 32
