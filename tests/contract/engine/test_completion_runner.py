"""Our whole completions beside vLLM's own, from the same engine, and what a caller who leaves has used."""

import asyncio
import json

import pytest

from deployments.models.contract.errors import RequestRejected
from tests.contract.engine.cuts import wherever_it_is_cut
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
def ask(real_engine, compiler):
    from deployments.replica.completions import CompletionRunner
    from deployments.replica.scheduling.preparing import Preparing

    runner = CompletionRunner(real_engine.completions, compiler, Preparing(), real_engine.model)

    async def ask(body, reply, *, stream=False, **more):
        header = {"request_id": "req_1", "stream": stream, "cache_salt": "", "priority": 0, **more}
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


@pytest.mark.parametrize("stream", [False, True])
def test_how_long_a_completion_waited_for_its_first_step_is_told(real_engine, ask, stream):
    async def scenario():
        reply = Collected()
        await ask(BODIES["choices of several prompts"], reply, stream=stream)
        return reply.queued_s

    assert 0 <= real_engine.run(scenario()) < 60


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefix_is_reused_within_a_salt_and_never_across(real_engine, ask, stream):
    def cached(account):
        reply = Collected()
        body = {"prompt": "once upon a time " * 40, "max_tokens": 2}
        real_engine.run(ask(body, reply, stream=stream, cache_salt=f"{account} {stream}"))
        return reply.summary["usage"][2]

    assert cached("one") == 0
    assert cached("one") > 0
    assert cached("another") == 0


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
        await until(lambda: task.done() or (len(num_tokens()) == 4 and min(num_tokens()) >= 7))
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


STREAMS = {
    "plain": {"prompt": "hello there", "max_tokens": 12},
    "sampled": {"prompt": "hello there", "max_tokens": 12, "temperature": 1.0, "seed": 5, "presence_penalty": 1.0},
    "two choices of two prompts": {
        "prompt": ["hello", "good morning to you"],
        "max_tokens": 7,
        "n": 2,
        "temperature": 1.0,
        "seed": 3,
        "stream_options": {"include_usage": True},
    },
    "log probabilities": {"prompt": "hello there", "max_tokens": 8, "logprobs": 2},
    "echo": {"prompt": "hello there", "max_tokens": 6, "echo": True, "logprobs": 1},
    "stop": {"prompt": "hello there", "max_tokens": 30, "stop": ["ab", " t"]},
}


def chunks_of(pieces, choice):
    """Return the chunks of a choice; its log probabilities apart, as numbers differ in the last digits."""
    parsed = [
        json.loads(line[6:]) for piece in pieces for line in piece.decode().split("\n\n") if line.startswith("data: {")
    ]
    chunks = [chunk for chunk in parsed if chunk["choices"] and chunk["choices"][0]["index"] == choice]
    logprobs = [chunk["choices"][0].pop("logprobs") or {} for chunk in chunks]
    numbers = [number for one in logprobs for number in one.pop("token_logprobs", ()) if number is not None]
    for one in logprobs:
        one.pop("top_logprobs", None)
    return chunks, logprobs, numbers


@wherever_it_is_cut
@pytest.mark.parametrize("name", STREAMS)
def test_the_chunks_of_a_stream_are_the_same_wherever_it_is_cut(real_engine, ask, name, cuts_of):
    body = STREAMS[name]
    num_choices = body.get("n", 1) * (len(body["prompt"]) if isinstance(body["prompt"], list) else 1)

    async def continued(cut, whole):
        reply = Collected()
        header = {"created": 7, "takes_notes": True, "written": whole.numbers(cut), "cache_salt": f"{name}{cut}"}
        await ask(body, reply, stream=True, **header)
        return reply

    async def scenario():
        whole = await continued(0, Collected())
        cuts = cuts_of(len(whole.writes))
        return whole, dict(zip(cuts, await asyncio.gather(*(continued(cut, whole) for cut in cuts)), strict=True))

    whole, rests = real_engine.run(scenario())
    assert whole.last.endswith(b"data: [DONE]\n\n")
    assert (b'"usage":{' in whole.last) is ("stream_options" in body)
    assert len(whole.writes) > 5
    for cut, rest in rests.items():
        for choice in range(num_choices):
            *said, numbers = chunks_of(rest.writes, choice)
            *expected, expected_numbers = chunks_of(whole.writes[cut:], choice)
            assert said == expected
            assert numbers == pytest.approx(expected_numbers, abs=1e-4)
        assert (rest.last, rest.summary) == (whole.last, whole.summary)


def test_a_seed_with_a_prompt_that_takes_several_steps_is_as_exact(real_engine, ask):
    """A generator on a CPU cannot take draws back, which vLLM asks of it; without more, the engine would die."""
    body = {"prompt": "hello " * 150, "max_tokens": 20, "temperature": 1.0, "seed": 2}

    async def text_beside(prompts):
        reply = Collected()
        beside = [ask({"prompt": prompt, "max_tokens": 3}, Collected()) for prompt in prompts]
        await asyncio.gather(ask(body, reply, cache_salt=f"beside {len(prompts)}"), *beside)
        return json.loads(b"".join(reply.pieces))["choices"][0]["text"]

    alone, among_others = (real_engine.run(text_beside(prompts)) for prompts in ([], ["good morning " * 60] * 4))
    assert alone == among_others


def test_a_stream_that_the_engine_refuses_says_why(real_engine, ask):
    with pytest.raises(RequestRejected):
        real_engine.run(ask({"prompt": "hello", "logit_bias": {"999999": 1}}, Collected(), stream=True))


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_without_a_token_is_refused_by_its_name(real_engine, ask, stream):
    with pytest.raises(RequestRejected, match="'prompt': it has no tokens") as caught:
        real_engine.run(ask({"prompt": ""}, Collected(), stream=stream))
    assert (caught.value.param, caught.value.code) == ("prompt", "empty_string")
