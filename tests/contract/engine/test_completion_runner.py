"""Our whole completions beside vLLM's own, from the same engine, and what a caller who leaves has used."""

import asyncio
import json

import pytest

from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

BODIES = {
    "plain": {"prompt": "hello there", "max_tokens": 12},
    "choices of several prompts": {"prompt": ["hello", "good morning"], "max_tokens": 8, "n": 2, "temperature": 0.7},
    "log probabilities": {"prompt": "hello there", "max_tokens": 5, "logprobs": 2},
    "echo": {"prompt": "hello there", "max_tokens": 5, "echo": True, "logprobs": 1},
    "stop": {"prompt": "hello there", "max_tokens": 20, "stop": [" "]},
}


@pytest.fixture
def ask(real_engine):
    from deployments.replica.completions import CompletionRunner
    from deployments.replica.scheduling.preparing import Preparing

    runner = CompletionRunner(real_engine.completions, Preparing(), real_engine.model)

    async def ask(body, reply, *, stream=False):
        header = {"request_id": "req_1", "stream": stream, "cache_salt": "", "priority": 0}
        await runner.run(header, json.dumps({"temperature": 0, "seed": 1, **body}).encode(), reply)

    return ask


@pytest.mark.parametrize("name", BODIES)
def test_whole_completions_say_what_vllms_own_say(real_engine, ask, name):
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    async def scenario():
        reply = Collected()
        await ask(BODIES[name], reply)
        fields = {"model": real_engine.model, "temperature": 0, "seed": 1, "top_p": 1.0, **BODIES[name]}
        theirs = await real_engine.completions.create_completion(CompletionRequest.model_validate(fields))
        return json.loads(b"".join(reply.pieces)), reply.summary, theirs.model_dump()

    ours, summary, theirs = real_engine.run(scenario())
    fields = ("index", "text", "finish_reason")
    assert [[c[f] for f in fields] for c in ours["choices"]] == [[c[f] for f in fields] for c in theirs["choices"]]
    for mine, other in zip(ours["choices"], theirs["choices"], strict=True):
        if other["logprobs"] is None:
            assert mine["logprobs"] is None
            continue
        assert mine["logprobs"]["tokens"] == other["logprobs"]["tokens"]
        assert mine["logprobs"]["text_offset"] == other["logprobs"]["text_offset"]
    for count in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert ours["usage"][count] == theirs["usage"][count]
    assert summary["usage"][:2] == [theirs["usage"]["prompt_tokens"], theirs["usage"]["completion_tokens"]]


async def until(is_so):
    """Return when the engine, which runs in this loop, has come so far."""
    while not is_so():  # noqa: ASYNC110  # It tells nobody when it does.
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_made_for_a_caller_who_left_is_told(real_engine, ask, stream):
    processor = real_engine.client.output_processor

    async def scenario():
        reply = Collected()
        body = {"prompt": ["hello", "good morning"], "n": 2, "max_tokens": 900, "temperature": 0.7}
        task = asyncio.create_task(ask(body, reply, stream=stream))
        await until(lambda: task.done() or (len(num_tokens()) == 4 and min(num_tokens()) >= 5))
        assert not task.done(), task.exception()
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError)
        await until(lambda: not processor.get_num_unfinished_requests())
        return reply

    def num_tokens():
        return [state.detokenizer.num_output_tokens() for state in processor.request_states.values()]

    reply = real_engine.run(scenario())
    prompt_tokens, completion_tokens, *_ = reply.summary["usage"]
    assert prompt_tokens > 1
    assert 4 * 4 <= completion_tokens < 4 * 900
    assert stream or not reply.pieces
