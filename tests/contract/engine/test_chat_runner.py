"""Our chat answers beside vLLM's own, from the same engine: what is said must be the same, to the token."""

import asyncio
import json
from copy import copy
from functools import partial

import pytest

from deployments.models.contract.errors import RequestRejected
from tests.contract.engine.replies import Collected

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
STRICT_WEATHER = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BODIES = {
    "plain": {"max_tokens": 12},
    "two choices": {"max_tokens": 8, "n": 2, "seed": 5, "temperature": 0.7},
    "penalties and bias": {"max_tokens": 8, "frequency_penalty": 1.0, "presence_penalty": -1, "logit_bias": {"40": 5}},
    "logprobs": {"max_tokens": 5, "logprobs": True, "top_logprobs": 3},
    "named tool": {
        "max_tokens": 60,
        "tools": [STRICT_WEATHER],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    },
    "required tool": {"max_tokens": 80, "tools": [STRICT_WEATHER], "tool_choice": "required"},
    "unused tool": {"max_tokens": 8, "tools": [WEATHER], "tool_choice": "none"},
    "json schema": {
        "max_tokens": 120,
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}},
    },
}


@pytest.fixture
def ask(real_engine, compiler):
    from deployments.replica.chat import ChatRunner
    from deployments.replica.scheduling.preparing import Preparing

    runner = ChatRunner(real_engine.client, real_engine.serving, compiler, Preparing(), real_engine.model)

    async def ask(body, *, stream, reply=None, **header):
        reply = reply or Collected()
        full = {"request_id": "req_1", "stream": stream, "render": "wire", "cache_salt": "", "priority": 0, **header}
        await runner.run(full, json.dumps(body).encode(), reply)
        return reply

    return ask


def body_of(extra):
    return {"messages": [{"role": "user", "content": "hello there"}], "temperature": 0, "seed": 1, **extra}


def chunks_of(pieces) -> list:
    lines = [line.removeprefix("data: ") for line in b"".join(pieces).decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def folded(chunks) -> dict:
    """Return what a stream says of each choice, and how it ends."""
    said: dict = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            mine = said.setdefault(choice["index"], {"content": "", "calls": {}, "reason": None, "logprobs": []})
            delta = choice["delta"]
            mine["content"] += delta.get("content") or ""
            mine["logprobs"] += (choice.get("logprobs") or {}).get("content") or []
            for call in delta.get("tool_calls") or ():
                kept = mine["calls"].setdefault(call["index"], {"name": "", "arguments": ""})
                for field in kept:
                    kept[field] += (call.get("function") or {}).get(field) or ""
            mine["reason"] = choice["finish_reason"] or mine["reason"]
    return said


def agreed(theirs: dict, ours: dict) -> dict:
    """Return what vLLM says, but that answers which were cut amid calls ended by their length, as OpenAI's do."""
    for index, choice in theirs.items():
        if choice["reason"] == "tool_calls" and ours[index]["reason"] == "length":
            choice["reason"] = "length"
    return theirs


async def render_bounded(serving, request):
    """Render a request as ours are, whose calls have little white space."""
    from deployments.replica.structural_tags import MOST, put_json_in_tag

    rendered = await serving.render_chat_request(request)
    form = request.extract_structured_outputs()
    if form is not None:
        put_json_in_tag(form, MOST)
        request.structured_outputs, request.response_format = form, None
    return rendered


async def vllms_own(serving, body, *, stream):
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    options = {"stream_options": {"include_usage": True}} if stream else {}
    request = ChatCompletionRequest.model_validate({"top_p": 1.0, **body, **options, "stream": stream})
    bounded = copy(serving)
    bounded.render_chat_request = partial(render_bounded, serving)
    answer = await bounded.create_chat_completion(request)
    if not stream:
        return answer.model_dump()
    return chunks_of([line.encode() async for line in answer])


@pytest.mark.parametrize("name", BODIES)
def test_a_stream_says_what_vllms_own_stream_says(real_engine, ask, name):
    body = body_of(BODIES[name])
    theirs = real_engine.run(vllms_own(real_engine.serving, body, stream=True))
    reply = real_engine.run(ask({**body, "stream_options": {"include_usage": True}}, stream=True))
    ours = chunks_of(reply.pieces)
    assert folded(ours) == agreed(folded(theirs), folded(ours))
    is_cut = any(choice["reason"] == "length" for choice in folded(ours).values())
    assert is_cut is (reply.summary["usage"][1] == body["max_tokens"] * body.get("n", 1))
    assert ours[-1]["usage"]["completion_tokens"] == theirs[-1]["usage"]["completion_tokens"]
    usage = ours[-1]["usage"]
    assert reply.summary["usage"][:2] == [usage["prompt_tokens"], usage["completion_tokens"]]


@pytest.mark.parametrize("name", [name for name in BODIES if "tools" in BODIES[name]])
def test_a_body_with_calls_says_what_the_stream_says(real_engine, ask, name):
    """Of a call that is cut, vLLM's own body says the raw text."""
    body = body_of(BODIES[name])
    streamed = folded(chunks_of(real_engine.run(ask(body, stream=True)).pieces))
    (choice,) = json.loads(real_engine.run(ask(body, stream=False)).pieces[0])["choices"]
    calls = {number: call["function"] for number, call in enumerate(choice["message"].get("tool_calls", []))}
    content, reason = choice["message"]["content"] or "", choice["finish_reason"]
    assert {0: {"content": content, "calls": calls, "reason": reason, "logprobs": []}} == streamed


@pytest.mark.parametrize("name", [name for name in BODIES if "tools" not in BODIES[name]])
def test_a_body_says_what_vllms_own_body_says(real_engine, ask, name):
    body = body_of(BODIES[name])
    theirs = real_engine.run(vllms_own(real_engine.serving, body, stream=False))
    ours = json.loads(real_engine.run(ask(body, stream=False)).pieces[0])
    assert len(ours["choices"]) == len(theirs["choices"])
    for mine, other in zip(ours["choices"], theirs["choices"], strict=True):
        assert (mine["message"]["content"] or "") == (other["message"]["content"] or "")
        assert mine["finish_reason"] == other["finish_reason"]
        assert (mine["logprobs"] or {}).get("content") == (other["logprobs"] or {}).get("content")
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert ours["usage"][field] == theirs["usage"][field]


def test_a_schema_is_kept_when_the_answer_is_guided(real_engine, ask):
    reply = real_engine.run(ask(body_of(BODIES["json schema"]), stream=False))
    person = json.loads(json.loads(reply.pieces[0])["choices"][0]["message"]["content"])
    assert set(person) == {"name", "age"}
    assert person["age"] <= 99


def test_a_prefix_is_reused_within_a_salt_and_never_across(real_engine, ask):
    body = {"messages": [{"role": "user", "content": "once upon a time " * 40}], "max_tokens": 2}

    def cached(salt):
        return real_engine.run(ask(body, stream=False, cache_salt=salt)).summary["usage"][2]

    assert cached("account a") == 0
    assert cached("account a") > 0
    assert cached("account b") == 0


def test_the_request_leaves_the_engine_when_its_task_is_cancelled(real_engine, ask):
    async def scenario():
        reply = Collected()
        task = asyncio.create_task(ask(body_of({"max_tokens": 900}), stream=True, reply=reply))
        await reply.first.wait()
        assert real_engine.client.output_processor.get_num_unfinished_requests() == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return real_engine.client.output_processor.get_num_unfinished_requests()

    assert real_engine.run(scenario()) == 0


def test_a_prompt_that_is_too_long_is_told_its_length(real_engine, ask):
    body = {"messages": [{"role": "user", "content": "hello " * 3000}]}
    with pytest.raises(RequestRejected) as caught:
        real_engine.run(ask(body, stream=False))
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "messages"
    assert "maximum context length is 1024 tokens" in caught.value.message


def test_an_error_in_one_answer_leaves_the_others_alone(real_engine, ask):
    class Broken(Collected):
        def write(self, piece, note=b""):
            raise RuntimeError("no more")

    async def scenario():
        results = await asyncio.gather(
            ask(body_of({"max_tokens": 30}), stream=True, reply=Broken()),
            ask(body_of({"max_tokens": 30}), stream=True),
            return_exceptions=True,
        )
        assert isinstance(results[0], Exception)
        return results[1]

    assert real_engine.run(scenario()).summary["usage"][1] == 30


def test_plain_events_are_the_text_alone_and_notes_are_its_tokens(real_engine, ask):
    reply = real_engine.run(ask(body_of({"max_tokens": 12}), stream=True, render="events", takes_notes=True))
    assert all(piece.startswith(b'[["text",0,"') for piece in reply.pieces[:-1])
    assert reply.pieces[-1].endswith(b'["finished",0,"length",null]]')
    assert [len(token_ids) for token_ids in reply.groups] == [1] * 12


@pytest.mark.parametrize("stream", [False, True])
def test_events_tell_the_stop_text_that_ended_an_answer(real_engine, ask, stream):
    body = body_of({"max_tokens": 60, "stop": [" ", "e", "a", "o"]})
    reply = real_engine.run(ask(body, stream=stream, render="events"))
    kind, choice, reason, stop = json.loads(reply.pieces[-1])[-1]
    assert (kind, choice, reason) == ("finished", 0, "stop")
    assert stop in body["stop"]


@pytest.mark.parametrize(("tier", "priority"), [("flex", 1), ("priority", -1)])
def test_the_engine_runs_every_service_tier_and_names_it(real_engine, ask, tier, priority):
    body = body_of({"max_tokens": 4})
    usual = real_engine.run(ask(body, stream=True))
    reply = real_engine.run(ask(body, stream=True, service_tier=tier, priority=priority))
    assert {chunk["service_tier"] for chunk in chunks_of(reply.pieces)} == {tier}
    assert folded(chunks_of(reply.pieces)) == folded(chunks_of(usual.pieces))
    whole = real_engine.run(ask(body, stream=False, service_tier=tier, priority=priority))
    assert json.loads(b"".join(whole.pieces))["service_tier"] == tier
