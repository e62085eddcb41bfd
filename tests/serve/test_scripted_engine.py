"""The scripted engine itself: what other tests rely on; that answers go on is checked as it is of vLLM's."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import psutil
import pytest

from deployments.models.config import ModelConfig
from deployments.models.contract.errors import EngineDied
from tests.contract.engine.replies import Collected, assert_goes_on
from tests.serve.configurations import scripted
from tests.serve.scripted_engine import RepeatingEngine, start_engine
from tests.service import describe
from tests.waiting import eventually

pytestmark = pytest.mark.serve


@pytest.fixture
async def engine() -> AsyncIterator[RepeatingEngine]:
    model = scripted("demo", max_concurrent_requests=2, engine_kwargs={"step_s": 0.001})
    engine = await start_engine(ModelConfig.model_validate(model))
    yield engine
    await engine.stop()


async def ask(engine: RepeatingEngine, reply: Collected, prompt: str = "one two three", **fields: Any) -> None:
    header = {"request_id": "req_1", "priority": 0, "render": "wire", "stream": True, **fields.pop("header", {})}
    body = {"messages": [{"role": "user", "content": prompt}], **fields}
    await engine.runners["chat"].run(header, orjson.dumps(body), reply)


async def test_an_answer_is_the_prompt_s_words_again_and_again(engine: RepeatingEngine) -> None:
    reply = Collected()
    await ask(engine, reply, max_tokens=5, header={"stream": False})
    (choice,) = orjson.loads(b"".join(reply.pieces))["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("one two three one two ", "length")
    assert reply.summary == {"usage": [4, 5, 0, 0], "finish_reasons": ["length"]}


@pytest.mark.parametrize(("stop", "text"), [("two", "one "), ("o th", "one tw"), ("one", "")])
async def test_an_answer_ends_before_a_stop_string(engine: RepeatingEngine, stop: str, text: str) -> None:
    reply = Collected()
    await ask(engine, reply, max_tokens=50, stop=[stop], header={"stream": False})
    (choice,) = orjson.loads(b"".join(reply.pieces))["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, "stop")


@pytest.mark.parametrize("cut", [0, 1, 4, 7])
async def test_an_answer_goes_on_after_tokens_that_were_written(engine: RepeatingEngine, cut: int) -> None:
    async def told(written: list[int]) -> Collected:
        reply = Collected()
        await ask(engine, reply, max_tokens=7, header={"created": 1, "takes_notes": True, "written": written})
        return reply

    whole = await told([])
    rest = await told(whole.numbers(cut))
    assert len(whole.groups) == 7
    assert whole.summary == {"usage": [4, 7, 0, 0], "finish_reasons": ["length"]}
    assert_goes_on(whole, rest, cut)
    assert rest.writes == whole.writes[cut:]
    assert rest.last == whole.last


async def test_who_leaves_frees_a_place_for_who_waits(engine: RepeatingEngine) -> None:
    replies = [Collected() for _ in range(3)]
    asking = [asyncio.create_task(ask(engine, reply, max_tokens=4000)) for reply in replies]
    await eventually(lambda: sum(len(reply.pieces) > 5 for reply in replies) == 2)
    assert not replies[2].pieces
    asking[0].cancel()
    await eventually(lambda: len(replies[2].pieces) > 5)
    assert 5 < replies[0].summary["usage"][1] < 4000
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_what_runs_fails_and_the_engine_is_sick_when_its_process_is_killed(engine: RepeatingEngine) -> None:
    reply = Collected()
    asking = asyncio.create_task(ask(engine, reply, max_tokens=4000))
    await eventually(lambda: reply.pieces)
    (core,) = [one for one in psutil.Process().children() if "EngineCore" in describe(one)]
    core.kill()
    with pytest.raises(EngineDied):
        await asking
    with pytest.raises(EngineDied):
        await engine.check_health()
    with pytest.raises(EngineDied):
        await ask(engine, reply)


async def test_token_for_a_request_that_was_just_cancelled_ends_nothing(engine: RepeatingEngine) -> None:
    core = engine._core
    left = asyncio.get_running_loop().create_future()
    left.cancel()
    core._running[1_000] = (lambda: True), left
    core._write(1_000, 1, 0)
    await asyncio.wait_for(core.generate(3, 1, lambda: True), 5)
    await engine.check_health()
