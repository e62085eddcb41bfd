"""Public reports about streams as coding agents read them: how they end, and whether they tell what they end with."""

import asyncio

import httpx2
import openai
import orjson
import pytest

from deployments.models.contract.errors import EngineDied, Overloaded
from deployments.models.contract.events import Finished, ReasoningDelta, TextDelta
from serve_app.http.sse import Silence
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import WEATHER, calling, script, stream_of
from tests.twins.engine import Script
from tests.twins.legal import TERMINAL, fold
from tests.waiting import eventually

HI = [{"role": "user", "content": "Hi"}]
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
ASKS = {
    CHAT: {"messages": HI},
    "/v1/completions": {"prompt": "Hi"},
    RESPONSES: {"input": HI},
    MESSAGES: {"messages": HI, "max_tokens": 100},
}
ARGUMENTS = ['{"city":"Kiel"}', "{}", "", '{"city":"K\\u00f6ln é😀"}', '{ "city" :\n "Kiel" }', '{"city": "Ki', "[1]"]


async def events_of(world, path, **body):
    """Return the events of a stream, without the end mark of OpenAI's."""
    async with world.http() as http:
        answer = await http.post(path, json={"model": MODEL, "stream": True, **ASKS[path], **body})
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    return [orjson.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("ends", [EngineDied("gone"), Overloaded("full", 1.0), RuntimeError("a bug"), "length"])
async def test_a_response_always_ends_with_one_terminal_event(world, ends):
    """openai/codex#41340: without it the client says that the stream was closed, and tries again."""
    told = pieces_that_end(ends)
    world.chat.script = lambda request: Script(told(request))
    kinds = [event["type"] for event in await stream_of(world, {"input": "Hi"})]
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    assert kinds[-1] == ("response.incomplete" if ends == "length" else "response.failed")


def pieces_that_end(ends):
    def told(request):
        if isinstance(ends, str):
            return pieces(request, said("one", "two", reason=ends))
        return [*pieces(request, said("one", "two"))[:2], ends]

    return told


@pytest.mark.parametrize("extra", [[], calling(("call_1", "weather", "{}"))])
async def test_a_compaction_that_is_asked_for_is_the_only_item(world, extra):
    """openai/codex#42393, #31742: whatever else the model does while it sums up."""
    thought = [[ReasoningDelta("reasoning", 0, "What was it?")]]
    script(world, [*thought, *said("The user greeted.")[:-1], *(extra or said())])
    body = {"input": [*HI, {"type": "compaction_trigger"}], "tools": [WEATHER], "store": False}
    (item,) = fold(await stream_of(world, body))["output"]
    assert item["type"] == "compaction"


async def test_ids_are_the_same_in_the_stream_at_its_end_and_later(world):
    """vllm-project/vllm#56285."""
    thought = [[ReasoningDelta("reasoning", 0, "Hm.")]]
    script(world, [*thought, *calling(("call_1", "weather", "{}"), ("call_2", "weather", "{}"), words=("So",))])
    events = await stream_of(world, {"input": "Hi", "tools": [WEATHER]})
    final = fold(events)
    assert {event["response"]["id"] for event in events if "response" in event} == {final["id"]}
    assert len(final["output"]) == 4
    async with world.http() as http:
        assert (await http.get(f"/v1/responses/{final['id']}")).json()["output"] == final["output"]


LEAVING = [
    *((path, {**body, "stream": stream}, "chat") for path, body in ASKS.items() for stream in (False, True)),
    ("/v1/embeddings", {"model": EMBEDDING_MODEL, "input": "Hi"}, "embeddings"),
    ("/v1/rerank", {"model": EMBEDDING_MODEL, "query": "a", "documents": ["b"]}, "embeddings"),
    ("/v1/score", {"model": EMBEDDING_MODEL, "text_1": "a", "text_2": "b"}, "embeddings"),
    ("/v1/messages/count_tokens", {"messages": HI}, "chat"),
    ("/v1/responses/input_tokens", {"input": HI}, "chat"),
    ("/v1/responses/compact", {"input": [*HI, {"role": "assistant", "content": "Hello."}]}, "chat"),
    ("/tokenize", {"messages": HI}, "chat"),
]


@pytest.mark.parametrize(("path", "body", "engine"), LEAVING)
async def test_an_engine_stops_when_its_client_goes(world, live, path, body, engine):
    """vllm-project/vllm#52418, #55284."""
    asked = getattr(world, engine)
    asked.script = lambda request: Script([asyncio.Event()])
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}) as http:
        asking = asyncio.create_task(http.post(live + path, json={"model": MODEL, **body}))
        await eventually(lambda: asked.streams and asked.streams[0].started.is_set())
        asking.cancel()
        await asyncio.wait([asking])
    await eventually(lambda: asked.streams[0].is_aborted)


async def test_blocks_of_a_message_hold_only_their_own_deltas(world):
    """BerriAI/litellm#30043, #30014, #33224, #32357: thinking in a text block, two beginnings of one message."""
    mixed = [
        [ReasoningDelta("reasoning", 0, "Hm."), TextDelta("text", 0, "First")],
        [TextDelta("text", 0, ", this."), ReasoningDelta("reasoning", 0, "And then?")],
        *calling(("call_1", "weather", '{"city":"Kiel"}'), ("call_2", "weather", "{}"), words=("Second.",)),
    ]
    script(world, mixed)
    tool = {"name": "weather", "input_schema": {"type": "object"}}
    events = await events_of(world, MESSAGES, tools=[tool])
    kinds = [event["type"] for event in events]
    assert [kinds.count(kind) for kind in ("message_start", "message_delta", "message_stop")] == [1, 1, 1]
    fitting = {
        "text": {"text_delta"},
        "thinking": {"thinking_delta", "signature_delta"},
        "tool_use": {"input_json_delta"},
    }
    opened, begun = None, []
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert opened is None
            opened = event["content_block"]["type"]
            begun.append(opened)
        assert event["index"] == len(begun) - 1
        if event["type"] == "content_block_delta":
            assert event["delta"]["type"] in fitting[opened]
        if event["type"] == "content_block_stop":
            opened = None
    assert begun == ["thinking", "text", "thinking", "text", "tool_use", "tool_use"]


async def test_calls_that_are_streamed_have_their_own_places(world, live):
    """simonw/llm-vllm 0.4.0: all with the index 0, they become one."""
    told = [(f"call_{n}", "weather", orjson.dumps({"city": city}).decode()) for n, city in enumerate("abc")]
    script(world, calling(*told))
    tool = {"type": "function", "function": {"name": "weather"}}
    client = openai.AsyncOpenAI(api_key=SECRET, base_url=live + "/v1")
    async with client, client.chat.completions.stream(model=MODEL, messages=HI, tools=[tool]) as stream:
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == told


@pytest.mark.parametrize("path", ASKS)
async def test_a_stream_is_never_silent_for_long(world, path):
    """BerriAI/litellm#34374, #34819, vllm-project/vllm#47647: a model that reads a long prompt says nothing yet."""
    world.silence = Silence(0.01, 0.01)
    go_on = asyncio.Event()
    world.chat.script = lambda request: Script([go_on, *pieces(request, said("Hi."))])
    headers = {"authorization": f"Bearer {SECRET}"}
    async with serve(world.app()) as address, httpx2.AsyncClient(headers=headers, timeout=30) as http:
        body = {"model": MODEL, "stream": True, **ASKS[path]}
        async with http.stream("POST", address + path, json=body) as answer:
            assert answer.status_code == 200
            lines = aiter(answer.aiter_lines())
            while not (await anext(lines)).startswith(":"):
                assert not go_on.is_set()
            go_on.set()
            rest = [line async for line in lines]
    assert "Hi." in "".join(rest)


@pytest.mark.parametrize("arguments", ARGUMENTS)
async def test_arguments_are_the_same_in_the_stream_and_at_its_end(world, arguments):
    """vllm-project/vllm#47901, #48702, #47137."""
    script(world, calling(("call_1", "weather", arguments)))
    (call,) = fold(await stream_of(world, {"input": "Hi", "tools": [WEATHER]}))["output"]
    assert call["arguments"] == arguments
    tool = {"type": "function", "function": {"name": "weather"}}
    chunks = await events_of(world, CHAT, tools=[tool])
    deltas = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in deltas) == arguments
    async with world.http() as http:
        whole = (await http.post(CHAT, json={"model": MODEL, "messages": HI, "tools": [tool]})).json()
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == arguments


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORMED = {
    CHAT: {"response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}},
    RESPONSES: {"text": {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA}}},
    MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
}


@pytest.mark.parametrize("path", FORMED)
async def test_json_is_the_answer_and_not_part_of_the_thoughts_before_it(world, path):
    """vllm-project/vllm#47027, #50948, #54881."""
    script(
        world,
        [
            [ReasoningDelta("reasoning", 0, "It is by the sea.")],
            [TextDelta("text", 0, '{"city":'), TextDelta("text", 0, '"Kiel"}')],
            [Finished("finished", 0, "stop")],
        ],
    )
    async with world.http() as http:
        body = {"model": MODEL, **ASKS[path], **FORMED[path]}
        told = (await http.post(path, json=body)).json()
    thought, said_then = parts_of(told)
    assert thought == "It is by the sea."
    assert orjson.loads(said_then) == {"city": "Kiel"}


def parts_of(told):
    """Return the thoughts and the text of an answer in any of the three dialects."""
    if "choices" in told:
        message = told["choices"][0]["message"]
        return message["reasoning"], message["content"]
    if "output" in told:
        thought, message = told["output"]
        return thought["content"][0]["text"], message["content"][0]["text"]
    thought, text = told["content"]
    return thought["thinking"], text["text"]
