"""Calls of the service's tools are seen while the model writes them."""

import asyncio

import openai
import orjson

from deployments.tools.sandbox.sandbox import Sandbox
from tests.contract.http import code_interpreter_calls as code
from tests.contract.http import mcp_calls as mcp
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.response_calls import WEATHER, calling, messages, script, token_by_token
from tests.twins.engine import Script
from tests.twins.legal import fold, split


async def test_a_client_reads_code_before_the_model_has_finished_it(world, interpreter):
    written = asyncio.Event()
    told = token_by_token("code_interpreter", '{"code": "print(6 * 7)"}')

    def play(request):
        if world.chat.streams:
            return Script(pieces(request, said("42.")), USAGE)
        told_pieces = pieces(request, told)
        return Script([*told_pieces[:7], written, *told_pieces[7:]], USAGE)

    world.chat.script = play
    deltas, final = [], None
    async with serve(world.app()) as address:
        client = openai.AsyncOpenAI(api_key=SECRET, base_url=f"{address}/v1", max_retries=0)
        async with client, asyncio.timeout(60):
            async for event in await client.responses.create(model=MODEL, input="x", tools=[code.TOOL], stream=True):
                if event.type == "response.code_interpreter_call_code.delta":
                    deltas.append(event.delta)
                    written.set()  # The engine waits for this: the delta came before the rest of the code.
                if event.type == "response.completed":
                    final = event.response
    assert deltas == ["pr", "int", "(6 ", "* 7", ")"]
    assert final.output[0].code == "print(6 * 7)"
    assert final.output_text == "42."


async def test_the_replay_is_the_stream_token_by_token(world, interpreter):
    told = token_by_token("code_interpreter", orjson.dumps({"code": 'print("é😀")\n'}).decode())
    script(world, told, said("Printed."))
    events = await code.stream(world, include=code.OUTPUTS)
    final = fold(events)
    assert final["output"][0]["outputs"] == [{"type": "logs", "logs": "é😀\n"}]
    async with world.http() as http:
        assert split((await http.get(f"/v1/responses/{final['id']}?stream=true")).content) == events


async def test_arguments_for_a_remote_server_are_shown_as_they_come(world, mcp_server):
    script(world, token_by_token(mcp.STOCK, '{"thing":"nails"}'), said("Seven."))
    events = await mcp.stream(world, tools=[mcp.tool(mcp_server)])
    call = fold(events)["output"][1]
    deltas = [event["delta"] for event in events if event["type"] == "response.mcp_call_arguments.delta"]
    assert deltas == ['{"t', "hin", 'g":', '"na', "ils", '"}']
    assert (call["arguments"], call["output"]) == ('{"thing":"nails"}', "There are 7 nails.")


async def test_a_call_that_the_client_may_refuse_is_not_shown_before_it_is_asked_for(world, mcp_server):
    script(world, token_by_token(mcp.ORDER, '{"thing":"nails"}'))
    events = await mcp.stream(world, tools=[mcp.tool(mcp_server, require_approval="always")])
    assert [item["type"] for item in fold(events)["output"]] == ["mcp_list_tools", "mcp_approval_request"]


async def test_items_come_in_the_order_in_which_the_model_asked(world, interpreter):
    calls = calling(
        ("call_0", "code_interpreter", '{"code":"x = 1"}'),
        ("call_1", "weather", "{}"),
        ("call_2", "code_interpreter", '{"code":"x + 1"}'),
        ("call_3", "weather", '{"city":"Lisbon"}'),
    )
    script(world, calls)
    final = await code.respond(world, tools=[WEATHER, code.TOOL], include=code.OUTPUTS)
    kinds = [item["type"] for item in final["output"]]
    assert kinds == ["code_interpreter_call", "function_call", "code_interpreter_call", "function_call"]
    assert [call["outputs"] for call in code.calls_of(final)] == [[], [{"type": "logs", "logs": "2\n"}]]
    assert len(world.chat.requests) == 1
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "Rain."}
        for item in final["output"]
        if item["type"] == "function_call"
    ]
    script(world, said("Done."))
    await code.respond(world, tools=[WEATHER, code.TOOL], previous_response_id=final["id"], input=outputs)
    told = [message["content"] for message in messages(world) if message["role"] == "tool"]
    assert told == ["[The code printed nothing.]", "Rain.", "2", "Rain."]


async def test_a_call_beyond_the_bound_is_not_shown_either(world, interpreter):
    script(world, code.runs("1", "2"), said("Enough."))
    final = await code.respond(world, max_tool_calls=1)
    assert [call["code"] for call in code.calls_of(final)] == ["1"]


async def test_code_in_which_the_model_was_cut_off_is_not_run(world, interpreter):
    script(world, token_by_token("code_interpreter", '{"code":"print(1)', "length"), said("Well."))
    final = await code.respond(world)
    (call,) = final["output"]
    assert (call["status"], call["code"]) == ("incomplete", "print(1)")
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert interpreter.replicas[0].containers.num_containers == 0
    await code.respond(world, previous_response_id=final["id"])
    assert messages(world)[2]["content"] == "[The code was cut off or interrupted.]"


async def test_a_remote_call_in_which_the_model_was_cut_off_was_never_made(world, mcp_server):
    script(world, token_by_token(mcp.STOCK, '{"thing":"na', "length"), said("Well."))
    tools = [mcp.tool(mcp_server)]
    final = await mcp.respond(world, tools=tools)
    assert (final["status"], final["output"][1]["status"]) == ("incomplete", "incomplete")
    assert final["output"][1]["arguments"] == '{"thing":"na'
    assert mcp_server.calls == []
    await mcp.respond(world, tools=tools, previous_response_id=final["id"])
    assert [message["role"] for message in messages(world)] == ["user", "user"]


async def test_arguments_that_are_no_json_are_shown_and_told_to_the_model(world, interpreter):
    script(world, token_by_token("code_interpreter", '{"code":"print(1)\n"}'), said("Sorry."))
    (call,) = code.calls_of(await code.respond(world))
    assert (call["status"], call["code"]) == ("failed", "print(1)")
    assert "without code" in messages(world)[2]["content"]
    assert interpreter.replicas[0].containers.num_containers == 0


async def test_code_that_was_interrupted_ends_its_call_and_not_the_response(world, interpreter, monkeypatch):
    script(world, code.runs("while True: pass"), said("It never ends."))
    run = Sandbox.run
    monkeypatch.setattr(Sandbox, "run", lambda sandbox, code: run(sandbox, code, 0.2))
    final = await code.respond(world)
    assert code.calls_of(final)[0]["status"] == "incomplete"
    assert final["status"] == "completed"
    assert "The code was stopped" in messages(world)[2]["content"]
