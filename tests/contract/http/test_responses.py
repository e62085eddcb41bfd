"""The responses interface through the real client: what is answered, what is streamed, what is kept."""

import asyncio
from typing import Any

import openai
import orjson
import pytest
from pydantic import BaseModel

from batch.calls import LineCalls
from batch.gate import Gate
from batch.lines import BatchRequest
from deployments.models.engine import Usage
from deployments.models.errors import EngineDied, Overloaded, RequestRejected
from deployments.models.events import Finished, ReasoningDelta, TextDelta, ToolArgumentsDelta, ToolCallStart
from serve_app.operations.registry import create_operations
from serve_app.operations.routing import cache_salts
from serve_app.operations.safety import SafetyConfig
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, USAGE, WORDS, pieces, said
from tests.contract.http.conftest import principal
from tests.twins.engine import Script
from tests.twins.legal import KEYS, fold, split

OTHER = "sk-manta-another-secret-0000"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture
def responses(world):
    return world.client().responses


def calling(*calls: tuple[str, str, str], words: tuple[str, ...] = ()) -> list[list[Any]]:
    """Return the events of an answer that calls tools: (call id, name, arguments) each."""
    told: list[list[Any]] = [[TextDelta("text", 0, word)] for word in words]
    for number, (call_id, name, arguments) in enumerate(calls):
        told.append([ToolCallStart("tool_call", 0, number, call_id, name)])
        half = len(arguments) // 2
        told += [
            [ToolArgumentsDelta("tool_arguments", 0, number, part)] for part in (arguments[:half], arguments[half:])
        ]
    return [*told, [Finished("finished", 0, "tool_calls")]]


def script_of(world, *answers: list[list[Any]], usage: Usage = USAGE) -> None:
    """Have the engine give these answers, one a request, the last one for ever."""
    left = list(answers)

    def script(request):
        events = left.pop(0) if len(left) > 1 else left[0]
        return Script(pieces(request, events, usage), usage=usage)

    world.chat.script = script


def messages(world, number: int = -1) -> list[dict[str, Any]]:
    return orjson.loads(world.chat.requests[number].body)["messages"]


async def stream_of(world, body: dict[str, Any], path: str = "/v1/responses") -> list[dict[str, Any]]:
    async with world.http() as http:
        answer = await http.post(path, json={"model": MODEL, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return split(answer.content)


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

    script_of(world, said('{"name":"Ada",', '"age":36}'))
    response = await responses.parse(model=MODEL, input="Who?", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36)
    asked = orjson.loads(world.chat.requests[0].body)["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["strict"] is True
    assert asked["json_schema"]["schema"]["properties"].keys() == {"name", "age"}


async def test_function_calls_end_the_turn_and_their_outputs_continue_it(world, responses):
    script_of(world, calling(("call_1", "weather", '{"city":"Kiel"}'), words=("Let me see.",)), said("Rain."))
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
    script_of(world, calling(("call_1", "weather", "{}"), ("call_2", "weather", "{}")), said("Done."))
    history: list[Any] = [{"role": "user", "content": "Go."}]
    first = await responses.create(model=MODEL, input=history, tools=[WEATHER], store=False)
    history += first.output  # As the client's own models, fields that it added included.
    history += [{"type": "function_call_output", "call_id": f"call_{n}", "output": str(n)} for n in (2, 1)]
    await responses.create(model=MODEL, input=history, tools=[WEATHER], store=False)
    assert [message["role"] for message in messages(world)] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in messages(world)[2:]] == ["1", "2"]
    assert not world.state.kept


async def test_a_chain_branches_and_instructions_do_not_carry_over(world, responses):
    script_of(world, said("One."), said("Two."), said("Three."))
    first = await responses.create(model=MODEL, input="a", instructions="Be brief.")
    second = await responses.create(model=MODEL, input="b", previous_response_id=first.id)
    await responses.create(model=MODEL, input="c", previous_response_id=first.id, instructions="Be long.")
    assert second.previous_response_id == first.id
    assert [m["content"] for m in messages(world, 0)] == ["Be brief.", "a"]
    assert [m["content"] for m in messages(world, 1)] == ["a", "One.", "b"]
    assert [m["content"] for m in messages(world, 2)] == ["Be long.", "a", "One.", "c"]


async def test_reasoning_is_streamed_kept_and_given_back(world, responses):
    thought = [[ReasoningDelta("reasoning", 0, word)] for word in ("Hm", "m.")]
    script_of(world, [*thought, *said("Yes.")], said("Still yes."))
    events = await stream_of(world, {"input": "Sure?"})
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["reasoning", "message"]
    assert final["output"][0]["content"] == [{"type": "reasoning_text", "text": "Hmm."}]
    await responses.create(model=MODEL, input="Really?", previous_response_id=final["id"])
    assert messages(world)[1] == {"role": "assistant", "content": "Yes.", "reasoning": "Hmm."}


async def test_reasoning_comes_back_sealed_from_a_client_that_keeps_it(world, responses):
    script_of(world, [[ReasoningDelta("reasoning", 0, "Hmm.")], *said("Yes.")], said("Still yes."))
    first = await responses.create(model=MODEL, input="Sure?", store=False, include=["reasoning.encrypted_content"])
    token = first.output[0].encrypted_content
    assert token
    assert "Hmm" not in token
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": token}
    given = [{"role": "user", "content": "Sure?"}, thought, {"role": "assistant", "content": "Yes."}]
    await responses.create(model=MODEL, input=[*given, {"role": "user", "content": "Really?"}], store=False)
    assert messages(world)[1]["reasoning"] == "Hmm."
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=MODEL, input=[{**thought, "encrypted_content": "AAAA"}])
    assert caught.value.param == "input[0].encrypted_content"


async def test_length_makes_it_incomplete(world, responses):
    script_of(world, said("Once upon", reason="length"))
    response = await responses.create(model=MODEL, input="A story.", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert orjson.loads(world.chat.requests[0].body)["max_completion_tokens"] == 2


async def test_safety_policy_filters_prompt_and_answer(world):
    world.safety[MODEL] = SafetyConfig(patterns=("forbidden",))
    told = await world.client().responses.create(model=MODEL, input="Something forbidden.")
    assert (told.status, told.incomplete_details.reason, told.output) == ("incomplete", "content_filter", [])
    script_of(world, said("It is ", "forbidden", " here."))
    final = fold(await stream_of(world, {"input": "Say it."}))
    assert final["incomplete_details"] == {"reason": "content_filter"}
    assert final["output"][0]["content"][0]["text"] == "It is "


async def test_what_is_stored_can_be_retrieved_listed_and_deleted(world, responses):
    created = await responses.create(model=MODEL, input=[{"role": "user", "content": t} for t in "abc"])
    assert (await responses.retrieve(created.id)).model_dump() == created.model_dump()
    items = [item async for item in responses.input_items.list(created.id, limit=2, order="asc")]
    assert [item.content[0].text for item in items] == ["a", "b", "c"]
    assert all(item.id.startswith("msg_") for item in items)
    page = await responses.input_items.list(created.id, limit=2)
    assert [item.content[0].text for item in page.data] == ["c", "b"]
    assert page.has_more
    await responses.delete(created.id)
    for call in (responses.retrieve, responses.delete, responses.cancel, responses.input_items.list):
        with pytest.raises(openai.NotFoundError) as caught:
            await call(created.id)
        assert caught.value.body["message"] == f"Response with id '{created.id}' not found."


async def test_a_stored_stream_is_replayed_from_any_number(world):
    events = await stream_of(world, {"input": "Say hello."})
    response_id = events[0]["response"]["id"]
    async with world.http() as http:
        again = await http.get(f"/v1/responses/{response_id}?stream=true")
        assert split(again.content) == events
        rest = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after=4")
        assert split(rest.content) == events[5:]
        last = len(events) - 1
        none = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after={last}")
        assert none.content == b"data: [DONE]\n\n"
        past = await http.get(f"/v1/responses/{response_id}?stream=true&starting_after={last + 1}")
    assert past.status_code == 400
    assert past.json()["error"] == {
        "message": f"Invalid 'starting_after': there is no event with the sequence number {last + 1}. The last one is "
        f"{last}.",
        "type": "invalid_request_error",
        "param": "starting_after",
        "code": "invalid_value",
    }


async def test_store_false_leaves_no_trace(world, responses):
    response = await responses.create(model=MODEL, input="x", store=False)
    assert response.store is False
    assert not world.state.kept
    with pytest.raises(openai.BadRequestError) as caught:
        await responses.create(model=MODEL, input="y", previous_response_id=response.id)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        item = {"type": "item_reference", "id": response.output[0].id}
        await responses.create(model=MODEL, input=[item])


async def test_foreign_unknown_and_expired_ids_answer_alike(world, responses):
    world.principal(OTHER, key_id="key_2", account="acct_2")
    other = world.client(OTHER)
    made = await other.responses.create(model=MODEL, input="x")
    talk = await other.conversations.create()
    expired = await responses.create(model=MODEL, input="x")
    world.clock.advance(86_400)
    for response_id in ("resp_none", made.id, expired.id, "\x00", "x" * 500):
        for body in ({"input": "y"}, {"input": "y", "stream": True}):
            with pytest.raises(openai.BadRequestError) as caught:
                await responses.create(model=MODEL, previous_response_id=response_id[:128], **body)
            assert caught.value.code == "previous_response_not_found"
    for conversation_id in ("conv_none", talk.id):
        with pytest.raises(openai.NotFoundError):
            await responses.create(model=MODEL, input="y", conversation=conversation_id)
        with pytest.raises(openai.NotFoundError):
            await world.client().conversations.retrieve(conversation_id)
    with pytest.raises(openai.NotFoundError):
        await responses.create(model=MODEL, input=[{"type": "item_reference", "id": made.output[0].id}])


async def test_strict_retention_stores_nothing_and_says_so(world, responses):
    world.principal(retention="strict")
    response = await responses.create(model=MODEL, input="x", store=True)
    assert response.store is False
    assert not world.state.kept
    for wanted in ({"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}):
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await responses.create(model=MODEL, input="x", **wanted)
        assert caught.value.code == "retention_policy"
        assert caught.value.param == next(iter(wanted))
    with pytest.raises(openai.PermissionDeniedError):
        await world.client().conversations.create()
    with pytest.raises(openai.PermissionDeniedError):
        await world.client().conversations.items.create("conv_1", items=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize(("retention", "days"), [("ephemeral", 1), ("stored", 30)])
async def test_retention_says_how_long(world, responses, retention, days):
    world.principal(retention=retention)
    response = await responses.create(model=MODEL, input="x")
    world.clock.advance(days * 86_400 - 1)
    await responses.retrieve(response.id)
    world.clock.advance(1)
    with pytest.raises(openai.NotFoundError):
        await responses.retrieve(response.id)


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}


@pytest.mark.parametrize(
    ("items", "param", "words"),
    [
        ([{"role": "user", "content": "a"}, OUTPUT], "input[1].call_id", "No tool call found"),
        ([CALL, OUTPUT, OUTPUT], "input[2].call_id", "Another output"),
        ([CALL, {"role": "user", "content": "a"}], "input", "No tool output found"),
        ([{**OUTPUT, "call_id": "d"}, CALL], "input[0].call_id", "No tool call found"),
    ],
)
async def test_outputs_without_calls_and_calls_without_outputs_are_refused(world, responses, items, param, words):
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await responses.create(model=MODEL, input=items)
    assert caught.value.param == param
    assert not world.chat.requests
    assert world.gatekeeper.settled == []


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
    assert not world.state.kept


async def test_refusals_of_the_engine_name_the_callers_fields(world, responses):
    refusal = RequestRejected("Too long.", "messages", "context_length_exceeded")
    world.chat.script = lambda request: Script([refusal])
    with pytest.raises(openai.BadRequestError) as caught:
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


async def test_a_response_that_cannot_be_stored_fails(world, monkeypatch):
    async def save(*args, **kwargs):
        raise OSError("The disk is full.")

    monkeypatch.setattr("tests.twins.responses.MemoryResponses.save", save)
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


async def test_items_are_referred_to_by_their_ids(world, responses):
    script_of(world, said("The answer."), said("Again."))
    first = await responses.create(model=MODEL, input="x")
    await responses.create(
        model=MODEL, input=[{"type": "item_reference", "id": first.output[0].id}, {"role": "user", "content": "y"}]
    )
    assert [m["content"] for m in messages(world)] == ["The answer.", "y"]


async def test_input_tokens_are_what_the_engine_counts(world, responses):
    counted = await responses.input_tokens.count(model=MODEL, input="Say hello.", instructions="Be kind.")
    assert counted.input_tokens == USAGE.prompt_tokens
    assert orjson.loads(world.chat.requests[0].body)["max_completion_tokens"] == 1
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens


async def test_a_compacted_conversation_goes_on(world, responses):
    script_of(world, said("Blue."), said("They like blue."), said("Yes."))
    first = await responses.create(model=MODEL, input="I like blue.")
    compacted = await responses.compact(model=MODEL, previous_response_id=first.id)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    given = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
    last = await responses.create(model=MODEL, input=[*given, {"role": "user", "content": "Which?"}])
    assert messages(world)[1] == {"role": "system", "content": "What was said before, in short:\nThey like blue."}
    await responses.create(model=MODEL, input="And?", previous_response_id=last.id)
    assert "They like blue." in messages(world)[1]["content"]
    items = [item.model_dump() async for item in responses.input_items.list(last.id)]
    assert "They like blue." not in str(items)


async def test_conversations_gather_what_is_said(world, responses):
    script_of(world, said("One."), said("Two."))
    client = world.client()
    talk = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "zero"}], metadata={"topic": "t"}
    )
    assert talk.metadata == {"topic": "t"}
    first = await responses.create(model=MODEL, input="a", conversation=talk.id)
    assert first.conversation.id == talk.id
    await responses.create(model=MODEL, input="b", conversation={"id": talk.id})
    assert [m["content"] for m in messages(world)] == ["zero", "a", "One.", "b"]
    items = [item async for item in client.conversations.items.list(talk.id, order="asc", limit=2)]
    assert [item.content[0].text for item in items] == ["zero", "a", "One.", "b", "Two."]
    added = await client.conversations.items.create(talk.id, items=[{"role": "user", "content": "c"}])
    item_id = added.data[0].id
    assert (await client.conversations.items.retrieve(item_id, conversation_id=talk.id)).content[0].text == "c"
    assert (await client.conversations.items.delete(item_id, conversation_id=talk.id)).id == talk.id
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(item_id, conversation_id=talk.id)
    assert (await client.conversations.update(talk.id, metadata={"x": "y"})).metadata == {"x": "y"}
    assert (await client.conversations.delete(talk.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(talk.id)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=none"])
async def test_pages_are_asked_for_within_bounds(world, query):
    response = await world.client().responses.create(model=MODEL, input="x")
    talk = await world.client().conversations.create()
    async with world.http() as http:
        for path in (f"/v1/responses/{response.id}/input_items", f"/v1/conversations/{talk.id}/items"):
            answer = await http.get(f"{path}?{query}")
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == query.partition("=")[0]


@pytest.mark.parametrize(
    "query", ["stream=true&starting_after=-5", "stream=true&starting_after=x", "stream=maybe", "starting_after=1"]
)
async def test_streams_are_asked_for_in_whole_numbers(world, query):
    response = await world.client().responses.create(model=MODEL, input="x")
    async with world.http() as http:
        assert (await http.get(f"/v1/responses/{response.id}?{query}")).status_code == 400


async def test_only_background_responses_can_be_cancelled(world, responses):
    response = await responses.create(model=MODEL, input="x")
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        await responses.cancel(response.id)


async def test_many_turns_at_once_do_not_mix(world, responses):
    async def talk(name):
        first = await responses.create(model=MODEL, input=name)
        second = await responses.create(model=MODEL, input=name + "2", previous_response_id=first.id)
        return [item.content[0].text async for item in responses.input_items.list(second.id)]

    assert await asyncio.gather(*(talk(str(n)) for n in range(20))) == [[f"{n}2"] for n in range(20)]


async def lines_of(world, *bodies: dict[str, Any], **overrides: object):
    """Return what batch lines over /v1/responses come to: (status, body) each."""
    operations = create_operations(world.directory, cache_salts(b"salt"), {}, world.storage()).by_path()
    calls = LineCalls(operations, Gate(8), 10)
    answers = []
    for number, body in enumerate(bodies):
        answer = await calls.run(number, BatchRequest(f"r{number}", body), "/v1/responses", principal(**overrides))
        told = orjson.loads(answer.rendered)["response"]
        answers.append((told["status_code"], told["body"]))
    return answers


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
