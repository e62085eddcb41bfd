"""A request whose engine dies while it gets it: no client sees the end of an answer, and it goes on elsewhere.

vLLM makes a last output of each request that is aborted, also of one that its engine never got.
"""

import json

import pytest

from deployments.models.contract.errors import EngineDied
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

ASKED = {"temperature": 0.7, "max_tokens": 8}
BODIES = {
    "chat": {"messages": [{"role": "user", "content": "Who are you?"}], **ASKED},
    "completion": {"prompt": "hello there", **ASKED},
}


@pytest.fixture
def ask(real_engine, compiler):
    from deployments.replica.chat import ChatRunner
    from deployments.replica.completions import CompletionRunner
    from deployments.replica.scheduling.preparing import Preparing

    runners = {
        "chat": ChatRunner(real_engine.client, real_engine.serving, compiler, Preparing(), real_engine.model),
        "completion": CompletionRunner(real_engine.completions, compiler, Preparing(), real_engine.model),
    }

    async def ask(kind, reply, *, num_choices):
        header = {"request_id": "req_1", "stream": True, "render": "wire", "cache_salt": "", "priority": 0}
        body = {**BODIES[kind], "stream": True, "n": num_choices}
        await runners[kind].run({**header, "takes_notes": True}, json.dumps(body).encode(), reply)

    return ask


def assert_not_ended(reply):
    assert b"finish_reason" not in b"".join(reply.pieces).replace(b'"finish_reason":null', b"")
    assert reply.summary is None


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("num_choices", [1, 2])
def test_answer_has_not_ended_where_the_engine_died_as_it_got_the_request(
    real_engine, ask, monkeypatch, kind, num_choices
):
    from vllm.v1.engine.exceptions import EngineDeadError

    core, num_added = real_engine.client.engine_core, 0
    add = core.add_request_async

    async def die_at_the_last(request):
        nonlocal num_added
        num_added += 1
        if num_added == num_choices:
            raise EngineDeadError
        await add(request)

    async def scenario():
        reply = Collected()
        with monkeypatch.context() as patch:
            patch.setattr(core, "add_request_async", die_at_the_last)
            with pytest.raises((EngineDeadError, EngineDied)):
                await ask(kind, reply, num_choices=num_choices)
        return reply

    reply = real_engine.run(scenario())
    assert num_added == num_choices
    assert_not_ended(reply)


@pytest.mark.parametrize("kind", BODIES)
def test_request_that_the_engine_gives_up_has_not_ended(real_engine, ask, kind):
    async def scenario():
        reply = Collected()
        processor = real_engine.client.output_processor

        def write(piece, note=b""):
            Collected.write(reply, piece, note)
            processor.abort_requests(list(processor.request_states), internal=True)

        reply.write = write
        with pytest.raises(EngineDied):
            await ask(kind, reply, num_choices=1)
        return reply

    assert_not_ended(real_engine.run(scenario()))
