"""Remote MCP servers within responses: a scripted model, the real client, a real MCP server on loopback."""

import asyncio
import logging

import orjson

from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.batch_calls import run_responses
from tests.contract.http.mcp_calls import NAILS, ORDER, ORDERING, PRINT, STOCK, decide, offered, respond, stream, tool
from tests.contract.http.response_calls import WEATHER, calls, messages, of_type, script
from tests.contract.http.tool_calls import SEARCHING, ScriptedTool
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually

CANARY = "kanarienvogel-93f1"


async def test_tools_are_listed_and_called(world, mcp_server):
    script(world, NAILS, said("Seven."))
    events = await stream(world, tools=[tool(mcp_server, server_description="A store.")])
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    listed, call, _ = final["output"]
    assert listed["id"].startswith("mcpl_")
    assert listed["server_label"] == "store"
    assert "error" not in listed
    assert [one["name"] for one in listed["tools"]] == ["stock", "order", "print.label"]
    assert listed["tools"][0]["annotations"] == {"readOnlyHint": True, "read_only": True}
    assert listed["tools"][0]["input_schema"]["required"] == ["thing"]
    assert call["id"].startswith("mcp_")
    assert (call["status"], call["server_label"], call["name"]) == ("completed", "store", "stock")
    assert (call["arguments"], call["output"], call["error"]) == ('{"thing":"nails"}', "There are 7 nails.", None)
    assert call["approval_request_id"] is None
    kinds = [event["type"].removeprefix("response.mcp_") for event in events if ".mcp_" in event["type"]]
    assert kinds == [
        "list_tools.in_progress",
        "list_tools.completed",
        "call.in_progress",
        "call_arguments.delta",
        "call_arguments.delta",
        "call_arguments.done",
        "call.completed",
    ]
    assert offered(world) == [STOCK, ORDER, PRINT]
    (first, *_) = orjson.loads(world.chat.requests[0].body)["tools"]
    assert first["function"]["description"] == "How many of a thing there are. [store: A store.]"
    assert messages(world)[-1] == {"role": "tool", "tool_call_id": "call_0", "content": "There are 7 nails."}
    assert final["usage"]["total_tokens"] == 2 * USAGE.total_tokens
    async with world.http() as http:
        assert split((await http.get(f"/v1/responses/{final['id']}?stream=true")).content) == events


async def test_the_client_reads_the_stream(world, mcp_server):
    script(world, NAILS, said("Seven."))
    async with world.client().responses.stream(model=MODEL, input="x", tools=[tool(mcp_server)]) as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()
    assert "response.mcp_call_arguments.done" in kinds
    assert [item.type for item in final.output] == ["mcp_list_tools", "mcp_call", "message"]
    assert final.output[1].output == "There are 7 nails."
    assert final.tools[0].server_label == "store"


async def test_a_server_of_an_older_version_of_the_protocol(world, mcp_server):
    mcp_server.is_old = True
    script(world, NAILS, NAILS, said("Seven."))
    final = await respond(world, tools=[tool(mcp_server)])
    assert [call["output"] for call in of_type(final, "mcp_call")] == ["There are 7 nails."] * 2
    assert mcp_server.count("initialize") == 1


async def test_tools_are_listed_once_for_a_conversation(world, mcp_server):
    script(world, NAILS, said("Seven."))
    talk = await world.client().conversations.create()
    first = await respond(world, tools=[tool(mcp_server)], conversation=talk.id)
    for how in (
        {"previous_response_id": first["id"]},
        {"conversation": talk.id},
        {"input": [{"role": "user", "content": "x"}, *first["output"], {"role": "user", "content": "y"}]},
    ):
        script(world, NAILS, said("Seven."))
        final = await respond(world, tools=[tool(mcp_server)], **how)
        assert [item["type"] for item in final["output"]] == ["mcp_call", "message"]
        before = messages(world)
        assert next(message["content"] for message in before if message["role"] == "tool") == "There are 7 nails."
    assert mcp_server.count("tools/list") == 1
    assert len(mcp_server.calls) == 4


async def test_a_model_may_leave_out_the_server_where_one_tool_alone_can_be_meant(world, mcp_server):
    script(world, calls(("stock", {"thing": "nails"})), said("Seven."))
    final = await respond(world, tools=[tool(mcp_server)])
    (call,) = of_type(final, "mcp_call")
    assert (call["status"], call["name"], call["output"]) == ("completed", "stock", "There are 7 nails.")
    said_before = messages(world)[-2]["tool_calls"][0]["function"]["name"]
    assert said_before == STOCK
    two = [tool(mcp_server), tool(mcp_server, server_label="shed")]
    own = {"type": "function", "name": "stock", "parameters": {"type": "object"}}
    for tools in (two, [tool(mcp_server), own]):
        script(world, calls(("stock", {"thing": "nails"})), said("Seven."))
        final = await respond(world, tools=tools)
        assert of_type(final, "mcp_call") == []
        assert [item["name"] for item in of_type(final, "function_call")] == ["stock"]


async def test_only_allowed_tools_are_offered_also_from_the_list_of_before(world, mcp_server):
    script(world, said("Hm."))
    first = await respond(world, tools=[tool(mcp_server, allowed_tools=["order", "stock"])])
    assert [one["name"] for one in of_type(first, "mcp_list_tools")[0]["tools"]] == ["stock", "order"]
    for allowed, names in ((["order"], [ORDER]), ({"read_only": True}, [STOCK]), ({"tool_names": []}, [])):
        await respond(world, tools=[tool(mcp_server, allowed_tools=allowed)], previous_response_id=first["id"])
        assert offered(world, -1) == names
    await respond(world, tools=[tool(mcp_server, allowed_tools={"read_only": False, "tool_names": ["order", "stock"]})])
    assert offered(world, -1) == [ORDER]


async def test_secrets_are_sent_and_left_nowhere(world, mcp_server, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    script(world, NAILS, said("Seven."))
    secret = tool(mcp_server, authorization=f"{CANARY}-1", headers={"X-Key": f"{CANARY}-2"})
    secret["server_url"] += f"?key={CANARY}-3"
    shown = [await respond(world, tools=[secret])]
    world.chat.script = lambda request: Script([asyncio.Event()], USAGE)
    begun = await world.client().responses.create(model=MODEL, input="x", background=True, tools=[secret])
    await eventually(lambda: len(world.chat.requests) == 3)
    stored = [
        repr(await world.stored.turns()),
        repr(await world.stored.events(begun.id)),
        repr(await world.stored.journal(begun.id)),
        repr(await world.stored.job(begun.id)),
        repr(world.log.__dict__),
    ]
    assert (await world.stored.job(begun.id))["runs_here_only"] is True
    await world.client().responses.cancel(begun.id)
    async with world.http() as http:
        for path in ("", "/input_items", "?stream=true"):
            shown.append((await http.get(f"/v1/responses/{shown[0]['id']}{path}")).text)
        for headers in ({"X-Key": f"{CANARY}\n"}, {f"{CANARY} ": "x"}, [CANARY]):
            body = {"model": MODEL, "input": "x", "tools": [{**secret, "headers": headers}]}
            shown.append((await http.post("/v1/responses", json=body)).text)
        shown.append((await http.get("/metrics")).text)
    sent = mcp_server.headers[-1]
    assert (sent["authorization"], sent["x-key"]) == (f"Bearer {CANARY}-1", f"{CANARY}-2")
    logged = [
        f"{r.getMessage()} {r.args} {r.exc_info}"
        for r in caplog.records
        if not r.name.startswith(("asyncio", "uvicorn"))
    ]
    for text in [*map(str, shown), *stored, *logged, *capfd.readouterr()]:
        assert CANARY not in text.lower()
    assert shown[0]["tools"][0] == {
        "type": "mcp",
        "server_label": "store",
        "server_description": None,
        "server_url": mcp_server.url.removesuffix("mcp") + "<redacted>",
        "allowed_tools": None,
        "require_approval": "never",
        "headers": None,
    }


def chosen(world, number=0):
    return orjson.loads(world.chat.requests[number].body).get("tool_choice")


EVERY = ["weather", STOCK, ORDER, PRINT]
CHOICES = [
    ("required", "required", EVERY),
    ("none", "none", EVERY),
    ({"type": "mcp", "server_label": "store"}, "required", [STOCK, ORDER, PRINT]),
    (
        {"type": "mcp", "server_label": "store", "name": "order"},
        {"type": "function", "function": {"name": ORDER}},
        EVERY,
    ),
    ({"type": "mcp", "server_label": "store", "name": "nothing"}, "auto", EVERY),
    (
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "store"}]},
        "auto",
        [STOCK, ORDER, PRINT],
    ),
    (
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [
                {"type": "mcp", "server_label": "store", "name": "stock"},
                {"type": "function", "name": "weather"},
            ],
        },
        "required",
        ["weather", STOCK],
    ),
]


async def test_the_choice_of_a_tool_is_for_the_first_call(world, mcp_server):
    for choice, wanted, names in CHOICES:
        first = len(world.chat.requests)
        script(world, NAILS, said("Seven."))
        final = await respond(world, tools=[WEATHER, tool(mcp_server)], tool_choice=choice)
        assert (chosen(world, first), offered(world, first)) == (wanted, names)
        assert chosen(world, -1) == ("none" if wanted == "none" else "auto")
        assert final["status"] == "completed"


async def test_one_call_at_a_time_is_asked_for_where_several_are_forbidden(world, mcp_server):
    script(world, NAILS, said("Seven."))
    await respond(world, tools=[tool(mcp_server)], parallel_tool_calls=False)
    assert orjson.loads(world.chat.requests[0].body)["parallel_tool_calls"] is False


async def test_two_servers_and_a_function_of_the_client_with_a_name_of_theirs(world, mcp_server):
    script(world, calls(("depot__stock", {"thing": "nails"})), said("Seven."))
    mine = {**WEATHER, "name": ORDER}
    final = await respond(world, tools=[mine, tool(mcp_server), tool(mcp_server, server_label="depot")])
    assert len(of_type(final, "mcp_list_tools")) == 2
    assert of_type(final, "mcp_call")[0]["server_label"] == "depot"
    await respond(world, tools=[mine, tool(mcp_server)], previous_response_id=final["id"])
    for number, num_functions in ((0, 6), (-1, 3)):
        names = offered(world, number)
        assert (len(names), names.count(ORDER)) == (num_functions, 1)


async def test_beside_another_tool_of_the_service_and_a_function_of_the_client(world, mcp_server):
    world.built_ins["code_interpreter"] = ScriptedTool()
    everything = calls(("web_search", {}), (STOCK, {"thing": "nails"}), (ORDER, {"thing": "nails"}), ("weather", {}))
    script(world, everything, said("Done."))
    tools = [WEATHER, SEARCHING, tool(mcp_server, require_approval={"never": {"read_only": True}})]
    first = await respond(world, tools=tools)
    kinds = ["mcp_list_tools", "function_call", "web_search_call", "mcp_call", "mcp_approval_request"]
    assert [item["type"] for item in first["output"]] == kinds
    output = {"type": "function_call_output", "call_id": "call_3", "output": "Rain."}
    second = await respond(world, tools=tools, previous_response_id=first["id"], input=[output, *decide(first, True)])
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
    told = [message["content"] for message in messages(world) if message["role"] == "tool"]
    assert sorted(told) == ["Ordered 1 nails.", "Rain.", "Sunny.", "There are 7 nails."]


async def test_its_tokens_are_counted_before(world, mcp_server):
    world.chat.script = lambda request: Script(pieces(request, said("x")), USAGE)
    counted = await world.client().responses.input_tokens.count(model=MODEL, input="x", tools=[tool(mcp_server)])
    assert counted.input_tokens == USAGE.prompt_tokens
    assert offered(world) == [STOCK, ORDER, PRINT]


async def test_in_the_background_it_runs_and_can_be_cancelled(world, mcp_server):
    script(world, ORDERING, said("Done."), ORDERING)
    responses = world.client().responses
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[tool(mcp_server)])
    await eventually(lambda: world.stored.status(begun.id) == "completed")
    done = await responses.retrieve(begun.id)
    assert [item.type for item in done.output] == ["mcp_list_tools", "mcp_call", "message"]
    mcp_server.hold = asyncio.Event()
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[tool(mcp_server)])
    await eventually(lambda: len(mcp_server.calls) == 2)
    assert (await responses.cancel(begun.id)).status == "cancelled"
    await eventually(lambda: mcp_server.num_interrupted)


async def test_a_strict_key_may_use_it(world, mcp_server):
    world.principal(retention="strict")
    script(world, NAILS, said("Seven."))
    final = await respond(world, tools=[tool(mcp_server)])
    assert of_type(final, "mcp_call")[0]["output"] == "There are 7 nails."


async def test_lines_of_a_batch_call_it_too(world, mcp_server, batching):
    def play(request):
        has_run = any(message["role"] == "tool" for message in orjson.loads(request.body)["messages"])
        return Script(pieces(request, said("Seven.") if has_run else NAILS), USAGE)

    world.chat.script = play
    told = await run_responses(world, tools=[tool(mcp_server, authorization=CANARY)])
    assert CANARY.encode() not in told
    answer = orjson.loads(told)["response"]["body"]
    assert of_type(answer, "mcp_call")[0]["output"] == "There are 7 nails."
