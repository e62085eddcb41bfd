"""The responses interface through the real client: what is answered, what is streamed, what fails."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx2
import openai
import orjson
import pytest
from pydantic import BaseModel

from deployments.models.contract.errors import ContextLengthExceeded, EngineDied, Overloaded, RequestRejected
from deployments.models.contract.events import ReasoningDelta
from serve_app.operations.safety.policy import SafetyConfig
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET, USAGE, WORDS, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import WEATHER, calling, lines_of, messages, script, stream_of
from tests.patience import PATIENT
from tests.twins.engine import Script
from tests.twins.legal import KEYS, fold
from tests.waiting import eventually

ASK = {"model": MODEL, "input": "Say hello."}
KEY = {"authorization": f"Bearer {SECRET}"}


async def test_a_response_has_every_key_and_the_text(world, responses):
    response = await responses.create(model=MODEL, input="Say hello.")
    assert response.output_text == "".join(WORDS)
    assert response.status == "completed"
    assert response.usage.total_tokens == USAGE.total_tokens
    assert response.usage.input_tokens_details.cached_tokens == USAGE.cached_tokens
    assert response._request_id.startswith("req_")
    async with world.http() as http:
        told = (await http.post("/v1/responses", json={"model": MODEL, "input": "x"})).json()
    assert set(told) == KEYS
    assert told["id"].startswith("resp_")
    assert told["completed_at"] >= told["created_at"]
    assert (told["store"], told["error"], told["incomplete_details"], told["tools"]) == (True, None, None, [])
    assert told["text"] == {"format": {"type": "text"}, "verbosity": "medium"}
    assert messages(world) == [{"role": "user", "content": "x"}]


async def test_a_stream_is_legal_and_each_write_is_one_frame(world):
    events = await stream_of(world, {"input": "Say hello."})
    final = fold(events)
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == list(WORDS)
    assert final["output"][0]["content"][0]["text"] == "".join(WORDS)
    assert world.chat.requests[0].render == "events"


async def test_the_client_streams_and_gathers_the_final_response(responses):
    async with responses.stream(model=MODEL, input="Say hello.") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "".join(WORDS)


async def test_the_client_parses_an_answer_into_a_model(world, responses):
    class Person(BaseModel):
        name: str
        age: int

    script(world, said('{"name":"Ada",', '"age":36}'))
    response = await responses.parse(model=MODEL, input="Who?", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36)
    asked = orjson.loads(world.chat.requests[0].body)["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["strict"] is True
    assert asked["json_schema"]["schema"]["properties"].keys() == {"name", "age"}


async def test_function_calls_end_the_turn_and_their_outputs_continue_it(world, responses):
    script(world, calling(("call_1", "weather", '{"city":"Kiel"}'), words=("Let me see.",)), said("Rain."))
    first = await responses.create(model=MODEL, input="Weather in Kiel?", tools=[WEATHER])
    text, call = first.output
    assert (text.type, call.type, call.name, call.arguments) == (
        "message",
        "function_call",
        "weather",
        '{"city":"Kiel"}',
    )
    asked = orjson.loads(world.chat.requests[0].body)
    assert asked["tools"][0]["function"]["name"] == "weather"
    assert first.tools[0].strict is True
    second = await responses.create(
        model=MODEL,
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}],
        tools=[WEATHER],
    )
    assert second.output_text == "Rain."
    assert messages(world) == [
        {"role": "user", "content": "Weather in Kiel?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Kiel"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "It rains."},
    ]


async def test_a_conversation_kept_by_the_client_is_the_same(world, responses):
    script(world, calling(("call_1", "weather", "{}"), ("call_2", "weather", "{}")), said("Done."))
    history: list[Any] = [{"role": "user", "content": "Go."}]
    first = await responses.create(model=MODEL, input=history, tools=[WEATHER], store=False)
    history += first.output  # As the client's own models, fields that it added included.
    history += [{"type": "function_call_output", "call_id": f"call_{n}", "output": str(n)} for n in (2, 1)]
    await responses.create(model=MODEL, input=history, tools=[WEATHER], store=False)
    assert [message["role"] for message in messages(world)] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in messages(world)[2:]] == ["1", "2"]
    assert world.stored.count() == 0


async def test_a_chain_branches_and_instructions_do_not_carry_over(world, responses):
    script(world, said("One."), said("Two."), said("Three."))
    first = await responses.create(model=MODEL, input="a", instructions="Be brief.")
    second = await responses.create(model=MODEL, input="b", previous_response_id=first.id)
    await responses.create(model=MODEL, input="c", previous_response_id=first.id, instructions="Be long.")
    assert second.previous_response_id == first.id
    assert [m["content"] for m in messages(world, 0)] == ["Be brief.", "a"]
    assert [m["content"] for m in messages(world, 1)] == ["a", "One.", "b"]
    assert [m["content"] for m in messages(world, 2)] == ["Be long.", "a", "One.", "c"]


async def test_reasoning_is_streamed_kept_and_given_back(world, responses):
    thought = [[ReasoningDelta("reasoning", 0, word)] for word in ("Hm", "m.")]
    script(world, [*thought, *said("Yes.")], said("Still yes."))
    events = await stream_of(world, {"input": "Sure?"})
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["reasoning", "message"]
    assert final["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hmm."}]
    await responses.create(model=MODEL, input="Really?", previous_response_id=final["id"])
    assert messages(world)[1] == {"role": "assistant", "content": "Yes.", "reasoning": "Hmm."}


async def test_reasoning_comes_back_sealed_from_a_client_that_keeps_it(world, responses):
    script(world, [[ReasoningDelta("reasoning", 0, "Hmm.")], *said("Yes.")], said("Still yes."))
    first = await responses.create(model=MODEL, input="Sure?", store=False, include=["reasoning.encrypted_content"])
    token = first.output[0].encrypted_content
    assert token
    assert "Hmm" not in token
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": token}
    given = [{"role": "user", "content": "Sure?"}, thought, {"role": "assistant", "content": "Yes."}]
    await responses.create(model=MODEL, input=[*given, {"role": "user", "content": "Really?"}], store=False)
    assert messages(world)[1]["reasoning"] == "Hmm."
    others = {**thought, "encrypted_content": "AAAA"}
    await responses.create(model=MODEL, input=[given[0], others, given[2], {"role": "user", "content": "Really?"}])
    assert "reasoning" not in messages(world)[1]


async def test_length_makes_it_incomplete(world, responses):
    script(world, said("Once upon", reason="length"))
    response = await responses.create(model=MODEL, input="A story.", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert orjson.loads(world.chat.requests[0].body)["max_completion_tokens"] == 2


async def test_safety_policy_filters_prompt_and_answer(world):
    world.safety[MODEL] = SafetyConfig(patterns=("forbidden",))
    told = await world.client().responses.create(model=MODEL, input="Something forbidden.")
    assert (told.status, told.incomplete_details.reason, told.output) == ("incomplete", "content_filter", [])
    script(world, said("It is ", "forbidden", " here."))
    final = fold(await stream_of(world, {"input": "Say it."}))
    assert final["incomplete_details"] == {"reason": "content_filter"}
    assert final["output"][0]["content"][0]["text"] == "It is "


async def test_other_models_do_not_offer_responses(responses):
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=EMBEDDING_MODEL, input="x")
    assert caught.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        await responses.create(model="none", input="x")


async def test_a_key_without_the_scope_is_refused(world, responses):
    world.principal(operations=frozenset({"chat"}))
    with pytest.raises(openai.PermissionDeniedError):
        await responses.create(model=MODEL, input="x")


async def test_tokens_are_counted_with_the_whole_conversation(world, responses):
    first = await responses.create(model=MODEL, input="x" * 4000, max_output_tokens=10)
    world.principal(tokens_per_minute=500)
    with pytest.raises(openai.RateLimitError):
        await responses.create(model=MODEL, input="y", previous_response_id=first.id, max_output_tokens=10)
    assert (await responses.create(model=MODEL, input="y", max_output_tokens=10)).status == "completed"
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens
    record = world.log.records[-1]
    assert (record.route, record.model, record.status) == ("/v1/responses", MODEL, 200)
    assert record.completion_tokens == USAGE.completion_tokens


@pytest.mark.parametrize(
    ("error", "status"), [(Overloaded("full"), 503), (EngineDied("gone"), 503), (ValueError("bug"), 500)]
)
@pytest.mark.parametrize("is_stream", [False, True])
async def test_failure_before_the_first_event_has_a_status(world, responses, error, status, is_stream):
    world.chat.script = lambda request: Script([error])
    with pytest.raises(openai.APIStatusError) as caught:
        await responses.create(model=MODEL, input="x", stream=is_stream)
    assert caught.value.status_code == status
    assert world.stored.count() == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_stream_says_that_a_response_was_created_while_the_model_says_nothing(world, fails):
    go_on = asyncio.Event()
    world.patience = replace(PATIENT, response_begins_s=0.02)
    world.chat.script = lambda request: Script(
        [go_on, Overloaded("full") if fails else b"", *pieces(request, said("Hi"))]
    )
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(serve(world.app()))
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=KEY, timeout=30))
        asked = http.stream("POST", address + "/v1/responses", json={**ASK, "stream": True})
        lines = aiter((await stack.enter_async_context(asked)).aiter_lines())
        told = [await anext(lines) for _ in range(6)]
        assert [line for line in told if line.startswith("event")] == [
            "event: response.created",
            "event: response.in_progress",
        ]
        go_on.set()
        told += [line async for line in lines]
    events = [orjson.loads(line[6:]) for line in told if line.startswith("data: {")]
    assert fold(events)["status"] == ("failed" if fails else "completed")
    await eventually(lambda: world.log.records)
    assert world.log.records[-1].status == (500 if fails else 200)


async def test_refusals_of_the_engine_name_the_callers_fields(world, responses):
    refusal = RequestRejected("Too long.", "messages", "context_length_exceeded")
    world.chat.script = lambda request: Script([refusal])
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=MODEL, input="x")
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")


async def test_a_conversation_that_is_too_long_is_called_input(world, responses):
    world.chat.script = lambda request: Script([ContextLengthExceeded("messages", 4096, 5000)])
    with pytest.raises(openai.BadRequestError, match="However, your input resulted in 5000 tokens") as caught:
        await responses.create(model=MODEL, input="x")
    assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")


@pytest.mark.parametrize("error", [EngineDied("gone"), Overloaded("full"), ValueError("bug")])
async def test_failure_midway_ends_the_stream_as_failed_and_is_kept(world, responses, error):
    world.chat.script = lambda request: Script(
        [*pieces(request, said("One", "two"))[:2], error], usage_when_aborted=USAGE
    )
    final = fold(await stream_of(world, {"input": "x"}))
    assert final["status"] == "failed"
    assert final["error"]["code"] == "server_error"
    assert final["output"][0]["status"] == "incomplete"
    assert final["usage"]["output_tokens"] == USAGE.completion_tokens
    assert (await responses.retrieve(final["id"])).status == "failed"
    assert [(r.status, r.code) for r in world.log.records if r.method == "POST"] == [(500, "server_error")]
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens


@pytest.mark.parametrize("error", [OSError("The disk is full."), RuntimeError("Nobody has thought of this.")])
async def test_a_response_that_cannot_be_stored_fails(world, monkeypatch, error):
    async def save(*args, **kwargs):
        raise error

    monkeypatch.setattr("deployments.state.responses.store.ResponseStore.save", save)
    final = fold(await stream_of(world, {"input": "x"}))
    assert final["status"] == "failed"
    async with world.http() as http:
        assert (await http.post("/v1/responses", json={"model": MODEL, "input": "x"})).status_code == 503
        kept = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "store": False})
    assert kept.status_code == 200


async def test_truncation_auto_drops_whole_turns_until_it_fits(world, responses):
    first = await responses.create(model=MODEL, input="a" * 4000, instructions="Stay.")
    second = await responses.create(model=MODEL, input="b" * 4000, previous_response_id=first.id)

    def script(request):
        told = orjson.loads(request.body)["messages"]
        if sum(len(message["content"]) for message in told) > 4500:
            return Script([RequestRejected("Too long.", "messages", "context_length_exceeded")])
        return Script(pieces(request, said("Fine.")), USAGE)

    world.chat.script = script
    body = {"model": MODEL, "input": "c", "previous_response_id": second.id, "instructions": "Stay."}
    with pytest.raises(openai.BadRequestError):
        await responses.create(**body)
    response = await responses.create(**body, truncation="auto")
    assert response.output_text == "Fine."
    assert [message["content"][0] for message in messages(world)] == ["S", "b", "H", "c"]


async def test_tool_choice_and_settings_reach_the_engine(world, responses):
    other = {**WEATHER, "name": "other"}
    await responses.create(
        model=MODEL,
        input="x",
        tools=[WEATHER, other],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "other"}]},
        temperature=0.5,
        top_p=0.25,
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        metadata={"a": "b"},
        user="u",
    )
    asked = orjson.loads(world.chat.requests[0].body)
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["other"]
    assert asked["tool_choice"] == "required"
    assert (asked["temperature"], asked["top_p"], asked["parallel_tool_calls"]) == (0.5, 0.25, False)
    assert asked["reasoning_effort"] == "low"
    assert not {"metadata", "user", "input"} & asked.keys()


async def test_the_engines_own_sampling_reaches_the_chat(world, responses):
    own = {"top_k": 3, "min_p": 0.1, "ignore_eos": True, "min_tokens": 4, "stop_token_ids": [7], "bad_words": ["x"]}
    await responses.create(model=MODEL, input="a", extra_body=own)
    asked = orjson.loads(world.chat.requests[0].body)
    assert {name: asked[name] for name in own} == own
    for wrong, name in (({"top_k": -2}, "top_k"), ({"min_tokens": 9, "max_output_tokens": 5}, "min_tokens")):
        with pytest.raises(openai.BadRequestError) as refused:
            await responses.create(model=MODEL, input="a", extra_body=wrong)
        assert refused.value.param == name


async def test_input_tokens_are_what_the_engine_counts(world, responses):
    counted = await responses.input_tokens.count(model=MODEL, input="Say hello.", instructions="Be kind.")
    assert counted.input_tokens == USAGE.prompt_tokens
    assert orjson.loads(world.chat.requests[0].body)["max_completion_tokens"] == 1
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens


async def test_batch_lines_are_responses_too(world, responses):
    first = await responses.create(model=MODEL, input="a")
    (one, other, unknown, background) = await lines_of(
        world,
        {"model": MODEL, "input": "b", "previous_response_id": first.id},
        {"model": MODEL, "input": "c", "store": False},
        {"model": MODEL, "input": "d", "previous_response_id": "resp_none"},
        {"model": MODEL, "input": "e", "background": True},
    )
    assert one[0] == 200
    assert set(one[1]) == KEYS
    assert one[1]["previous_response_id"] == first.id
    assert (await responses.retrieve(one[1]["id"])).output_text == "".join(WORDS)
    assert other[0] == 200
    assert (unknown[0], unknown[1]["error"]["code"]) == (400, "previous_response_not_found")
    assert (background[0], background[1]["error"]["param"]) == (400, "background")
    assert world.chat.requests[1].priority == 10
