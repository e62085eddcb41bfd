"""Remote MCP servers within responses: a scripted model, the real client, a real MCP server on loopback."""

import asyncio
import dataclasses
import logging

import openai
import orjson
import pytest

from deployments.models.errors import RequestRejected
from deployments.tools.config import McpConfig, OutboundConfig
from deployments.tools.mcp.client import McpServers, McpSession
from serve_app.operations.mcp.tool import RemoteMcp
from serve_app.operations.responses.background import NOT_TAKEN_OVER
from serve_app.operations.responses.tools import ToolBounds
from tests.contract.http.answers import MODEL, SECRET, USAGE, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.test_responses import WEATHER, calling
from tests.contract.http.test_tool_loop import SEARCHING, ScriptedTool, messages, script
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually

STOCK, ORDER, PRINT = "store__stock", "store__order", "store__print_label_6ce3507f"
CANARY = "kanarienvogel-93f1"


def tool(server, **more):
    return {"type": "mcp", "server_label": "store", "server_url": server.url, "require_approval": "never", **more}


def calls(*wanted, words=()):
    """Return the events of a model that calls functions: (name, arguments) each."""
    told = [(f"call_{n}", name, orjson.dumps(arguments).decode()) for n, (name, arguments) in enumerate(wanted)]
    return calling(*told, words=words)


NAILS = calls((STOCK, {"thing": "nails"}))
ORDERING = calls((ORDER, {"thing": "nails", "amount": 3}))


async def stream(world, **body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def respond(world, **body):
    return fold(await stream(world, **body))


async def refused(world, **body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", **body})
    return answer.status_code, answer.json()["error"]


def of_type(response, kind):
    return [item for item in response["output"] if item["type"] == kind]


def offered(world, number=0):
    return [one["function"]["name"] for one in orjson.loads(world.chat.requests[number].body).get("tools", ())]


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


async def test_only_allowed_tools_are_offered_also_from_the_list_of_before(world, mcp_server):
    script(world, said("Hm."))
    first = await respond(world, tools=[tool(mcp_server, allowed_tools=["order", "stock"])])
    assert [one["name"] for one in of_type(first, "mcp_list_tools")[0]["tools"]] == ["stock", "order"]
    for allowed, names in ((["order"], [ORDER]), ({"read_only": True}, [STOCK]), ({"tool_names": []}, [])):
        await respond(world, tools=[tool(mcp_server, allowed_tools=allowed)], previous_response_id=first["id"])
        assert offered(world, -1) == names
    await respond(world, tools=[tool(mcp_server, allowed_tools={"read_only": False, "tool_names": ["order", "stock"]})])
    assert offered(world, -1) == [ORDER]


async def ask_for_approval(world, server, **more):
    """Return a response that waits for the approval of an order."""
    script(world, ORDERING, said("Done."))
    first = await respond(world, tools=[tool(server, require_approval=None)], **more)
    assert first["status"] == "completed"
    assert server.calls == []
    return first


def decide(response, approve, **more):
    """Return the input that decides on every request of a response."""
    return [
        {"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": approve, **more}
        for item in of_type(response, "mcp_approval_request")
    ]


async def test_a_call_waits_for_approval_and_is_made_once(world, mcp_server):
    first = await ask_for_approval(world, mcp_server)
    (request,) = of_type(first, "mcp_approval_request")
    assert request["id"].startswith("mcpr_")
    assert {**request, "id": ""} == {
        "id": "",
        "type": "mcp_approval_request",
        "server_label": "store",
        "name": "order",
        "arguments": '{"thing":"nails","amount":3}',
    }
    assert len(world.chat.requests) == 1
    tools = [tool(mcp_server, require_approval=None)]
    second = await respond(world, tools=tools, previous_response_id=first["id"], input=decide(first, True))
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
    (call,) = of_type(second, "mcp_call")
    assert (call["approval_request_id"], call["output"]) == (request["id"], "Ordered 3 nails.")
    assert [message["role"] for message in messages(world)] == ["user", "assistant", "tool"]
    assert messages(world)[-1]["content"] == "Ordered 3 nails."
    third = await respond(world, tools=tools, previous_response_id=second["id"], input="Thanks.")
    assert [item["type"] for item in third["output"]] == ["message"]
    told = messages(world)
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "assistant", "user"]
    assert told[2]["content"] == "Ordered 3 nails."
    assert len(mcp_server.calls) == 1
    async with world.http() as http:
        kept = (await http.get(f"/v1/responses/{second['id']}/input_items")).json()["data"]
    assert next(item["type"] for item in kept) == "mcp_approval_response"


async def test_a_call_that_is_declined_or_not_decided_is_not_made(world, mcp_server):
    first = await ask_for_approval(world, mcp_server)
    for said_then, told in (
        (decide(first, False, reason="Too many."), "the user declined it. The reason: Too many."),
        ("Never mind.", "the user has not approved it."),
    ):
        final = await respond(world, tools=[tool(mcp_server)], previous_response_id=first["id"], input=said_then)
        assert [item["type"] for item in final["output"]] == ["message"]
        (output,) = [message["content"] for message in messages(world) if message["role"] == "tool"]
        assert output == f"This call was not carried out: {told}"
    assert mcp_server.calls == []


async def test_a_client_that_keeps_the_conversation_approves_too(world, mcp_server):
    first = await ask_for_approval(world, mcp_server, store=False)
    history = [{"role": "user", "content": "x"}, *first["output"], *decide(first, True)]
    tools = [tool(mcp_server, require_approval=None)]
    second = await respond(world, tools=tools, store=False, input=history)
    assert of_type(second, "mcp_call")[0]["output"] == "Ordered 3 nails."
    history += [*second["output"], {"role": "user", "content": "Thanks."}]
    await respond(world, tools=tools, store=False, input=history)
    assert len(mcp_server.calls) == 1
    bare = [item for item in history if item["type" if "type" in item else "role"] != "mcp_call"]
    await respond(world, tools=tools, store=False, input=bare)
    assert len(mcp_server.calls) == 1


async def test_in_a_conversation_it_is_approved_and_made_once(world, mcp_server):
    talk = {"conversation": (await world.client().conversations.create()).id}
    first = await ask_for_approval(world, mcp_server, **talk)
    tools = [tool(mcp_server, require_approval=None)]
    second = await respond(world, tools=tools, input=decide(first, True), **talk)
    assert of_type(second, "mcp_call")[0]["output"] == "Ordered 3 nails."
    third = await respond(world, tools=tools, input="Thanks.", **talk)
    assert [item["type"] for item in third["output"]] == ["message"]
    assert len(mcp_server.calls) == 1
    listed = await world.client().conversations.items.list(talk["conversation"], order="asc")
    kinds = [item.type for item in listed.data if item.type.startswith("mcp")]
    assert kinds == ["mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"]


async def test_several_calls_at_once_some_of_which_wait(world, mcp_server):
    both = calls((STOCK, {"thing": "nails"}), (ORDER, {"thing": "a"}), (ORDER, {"thing": "b"}), ("weather", {}))
    script(world, both, said("Done."))
    policy = {"never": {"read_only": True}}
    tools = [WEATHER, tool(mcp_server, require_approval=policy)]
    first = await respond(world, tools=tools)
    assert sorted(item["type"] for item in first["output"]) == [
        "function_call",
        "mcp_approval_request",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
    ]
    assert first["tools"][1]["require_approval"] == policy
    output = {"type": "function_call_output", "call_id": "call_3", "output": "Rain."}
    one, other = decide(first, True)
    answers = [one, output, {**other, "approve": False}]
    second = await respond(world, tools=tools, previous_response_id=first["id"], input=answers)
    assert [call["output"] for call in of_type(second, "mcp_call")] == ["Ordered 1 a."]
    told = {message["content"] for message in messages(world) if message["role"] == "tool"}
    assert {"There are 7 nails.", "Ordered 1 a.", "Rain."} < told
    assert mcp_server.calls == [("stock", "nails"), ("order", ("a", 1))]


async def test_approvals_that_fit_nothing_are_refused(world, mcp_server):
    first = await ask_for_approval(world, mcp_server)
    unknown = [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]
    status, error = await refused(world, tools=[tool(mcp_server)], previous_response_id=first["id"], input=unknown)
    assert (status, error["param"]) == (400, "input[0].approval_request_id")
    status, error = await refused(world, tools=[], previous_response_id=first["id"], input=decide(first, True))
    assert (status, error["param"]) == (400, "tools")
    assert "'store'" in error["message"]
    tools = [tool(mcp_server, allowed_tools=["stock"])]
    final = await respond(world, tools=tools, previous_response_id=first["id"], input=decide(first, True))
    assert of_type(final, "mcp_call")[0]["status"] == "failed"
    assert mcp_server.calls == []


async def test_what_goes_wrong_in_a_call_is_told_to_the_model(world, mcp_server):
    wrong = [
        calls((ORDER, {"amount": 3})),
        calling(("call_1", ORDER, "three nails")),
        calls((PRINT, {"size": 2 * 1024 * 1024})),
    ]
    script(world, *wrong, said("Sorry."))
    events = await stream(world, tools=[tool(mcp_server)])
    final = fold(events)
    told = [message["content"] for message in messages(world) if message["role"] == "tool"]
    assert [call["status"] for call in of_type(final, "mcp_call")] == ["failed"] * 3
    by_tool, by_us, by_size = [call["error"] for call in of_type(final, "mcp_call")]
    assert by_tool["type"] == "mcp_tool_execution_error"
    assert "Field required" in by_tool["content"][0]["text"]
    assert "Field required" in told[0]
    assert by_us["type"] == "mcp_protocol_error"
    assert "not a JSON object" in told[1]
    assert "longer than" in by_size["message"]
    assert [event["type"] for event in events].count("response.mcp_call.failed") == 3
    assert final["status"] == "completed"


async def test_a_server_that_refuses_is_an_error_of_the_list_and_the_response_goes_on(world, mcp_server):
    script(world, said("I cannot see the store."))
    for mcp_server.status in (401, 302, 500):
        events = await stream(world, tools=[tool(mcp_server)], tool_choice="required")
        final = fold(events)
        (listed,) = of_type(final, "mcp_list_tools")
        assert listed["tools"] == []
        assert listed["error"].endswith(f"The server answered with HTTP status {mcp_server.status}.")
        assert "response.mcp_list_tools.failed" in [event["type"] for event in events]
        assert offered(world) == []
        assert final["status"] == "completed"
    mcp_server.status = None
    final = await respond(world, tools=[tool(mcp_server)], previous_response_id=final["id"])
    assert "error" not in of_type(final, "mcp_list_tools")[0]


async def test_a_server_that_fails_later_fails_its_calls(world, mcp_server):
    script(world, said("Hm."), NAILS, said("Sorry."))
    first = await respond(world, tools=[tool(mcp_server)])
    mcp_server.status = 503
    final = await respond(world, tools=[tool(mcp_server)], previous_response_id=first["id"])
    (call,) = of_type(final, "mcp_call")
    message = "The server answered with HTTP status 503."
    assert call["error"] == {"type": "http_error", "code": 503, "message": message}
    assert messages(world)[-1]["content"] == f"The call failed: {message}"


async def test_private_addresses_are_not_reached(world, mcp_server):
    world.built_ins["mcp"] = RemoteMcp(McpServers(McpConfig(), OutboundConfig().rules))
    script(world, said("Hm."))
    for url in (mcp_server.url, mcp_server.url.replace("127.0.0.1", "localhost"), "http://2130706433/mcp"):
        final = await respond(world, tools=[{**tool(mcp_server), "server_url": url}])
        assert "not on the public internet" in of_type(final, "mcp_list_tools")[0]["error"]
    for url in ("file:///etc/passwd", "http://user:secret@example.com/", "http://example.com:22/", "no address"):
        status, error = await refused(world, tools=[{**tool(mcp_server), "server_url": url}])
        assert (status, error["param"]) == (400, "tools[0].server_url")
        assert "secret" not in error["message"]
    assert mcp_server.requests == []


async def test_more_tools_than_a_response_may_use_are_to_be_named(world, mcp_server):
    world.built_ins["mcp"] = RemoteMcp(
        McpServers(McpConfig(max_tools=2), OutboundConfig.model_validate({"allowed_networks": ["127.0.0.0/8"]}).rules)
    )
    script(world, said("Hm."))
    final = await respond(world, tools=[tool(mcp_server)])
    assert "'allowed_tools'" in of_type(final, "mcp_list_tools")[0]["error"]
    await respond(world, tools=[tool(mcp_server, allowed_tools=["stock", "order"])])
    assert offered(world, -1) == [STOCK, ORDER]
    functions = [{**WEATHER, "name": f"weather_{number}"} for number in range(127)]
    final = await respond(world, tools=[*functions, tool(mcp_server, allowed_tools=["stock", "order"])])
    assert final["error"]["code"] == "invalid_prompt"
    assert "Invalid 'tools': array too long" in final["error"]["message"]


async def test_tools_with_impossible_schemas_are_left_out(world, mcp_server):
    deep = {"type": "object"}
    for _ in range(35):
        deep = {"type": "array", "items": deep}
    listed = {"name": "deep", "description": None, "input_schema": deep, "annotations": None}
    item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "store", "tools": [listed]}
    script(world, said("Hm."))
    await respond(world, tools=[tool(mcp_server)], input=[item, {"role": "user", "content": "x"}])
    assert offered(world) == []


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
        repr(world.state.__dict__),
        repr(world.log.__dict__),
        *(str(job.job) for job in world.state.jobs.values()),
    ]
    assert world.state.jobs[begun.id].job["runs_here_only"] is True
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


async def test_what_cannot_be_is_refused_with_its_place(world, mcp_server):
    for more, param in (
        ({"server_label": "a b"}, "tools[0].server_label"),
        ({"server_url": None, "connector_id": "connector_gmail"}, "tools[0].connector_id"),
        ({"headers": {"Host": "b"}}, "tools[0].headers"),
    ):
        status, error = await refused(world, tools=[{**tool(mcp_server), **more}])
        assert (status, error["param"]) == (400, param)
    with pytest.raises(openai.BadRequestError) as caught:
        await world.client().responses.create(model=MODEL, input="x", tools=[{"type": "mcp", "server_label": "x"}])
    assert caught.value.param == "tools[0].server_url"


async def test_it_is_off_unless_switched_on_and_keys_need_the_scope(world, mcp_server):
    world.principal(operations=frozenset({"responses"}))
    status, error = await refused(world, tools=[tool(mcp_server)])
    assert (status, error["code"]) == (403, "insufficient_permissions")
    world.principal(operations=frozenset({"responses", "mcp"}))
    script(world, said("Hm."))
    await respond(world, tools=[tool(mcp_server)])
    del world.built_ins["mcp"]
    status, error = await refused(world, tools=[tool(mcp_server)])
    assert (status, error["param"]) == (400, "tools[0].type")


async def test_calls_are_bounded_in_number_those_that_were_approved_too(world, mcp_server):
    script(world, NAILS)  # For ever.
    final = await respond(world, tools=[tool(mcp_server)], max_tool_calls=2)
    assert len(of_type(final, "mcp_call")) == 2
    script(world, calls((ORDER, {"thing": "a"}), (ORDER, {"thing": "b"})), said("Done."))
    tools = [tool(mcp_server, require_approval="always")]
    first = await respond(world, tools=tools)
    final = await respond(
        world, tools=tools, max_tool_calls=1, previous_response_id=first["id"], input=decide(first, True)
    )
    assert len(of_type(final, "mcp_call")) == 1
    assert offered(world, -1) == []


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


async def test_a_client_that_leaves_ends_the_call(world, mcp_server):
    import httpx2

    mcp_server.hold = asyncio.Event()
    script(world, ORDERING)
    async with serve(world.app()) as address:
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {SECRET}"}, timeout=60) as http:
            body = {"model": MODEL, "input": "x", "stream": True, "tools": [tool(mcp_server)]}
            asked = asyncio.create_task(http.post(address + "/v1/responses", json=body))
            await eventually(lambda: mcp_server.calls)
            asked.cancel()
            await asyncio.wait([asked])
        await eventually(lambda: mcp_server.num_interrupted)


async def test_a_call_that_takes_too_long_is_ended(world, mcp_server):
    script(world, said("Hm."), ORDERING, said("Too slow."))
    first = await respond(world, tools=[tool(mcp_server)])
    rules = OutboundConfig.model_validate({"allowed_networks": ["127.0.0.0/8"]}).rules
    servers = McpServers(McpConfig(timeout_s=1), rules)
    world.built_ins["mcp"] = RemoteMcp(servers)
    mcp_server.hold = asyncio.Event()
    final = await respond(world, tools=[tool(mcp_server)], previous_response_id=first["id"])
    servers.close()
    assert "longer than 1 s" in of_type(final, "mcp_call")[0]["error"]["message"]
    assert final["status"] == "completed"


async def test_a_call_and_a_list_that_use_up_the_time_of_tools_have_failed(world, mcp_server, monkeypatch):
    script(world, said("Hello."), ORDERING, said("Too slow."))
    first = await respond(world, tools=[tool(mcp_server)])
    monkeypatch.setattr("serve_app.operations.responses.operation.ToolBounds", lambda: ToolBounds(max_s=0.2))
    mcp_server.hold = asyncio.Event()
    events = await stream(world, tools=[tool(mcp_server)], previous_response_id=first["id"])
    (call,) = of_type(fold(events), "mcp_call")
    assert (call["status"], call["arguments"]) == ("failed", '{"thing":"nails","amount":3}')
    assert call["error"]["message"] == "The server took too long."
    assert "response.mcp_call.failed" in [event["type"] for event in events]
    monkeypatch.setattr(McpSession, "list_tools", lambda session: asyncio.Event().wait())
    events = await stream(world, tools=[tool(mcp_server)])
    (listed,) = of_type(fold(events), "mcp_list_tools")
    assert (listed["tools"], listed["error"]) == ([], "The server took too long.")
    assert "response.mcp_list_tools.failed" in [event["type"] for event in events]


async def test_in_the_background_it_runs_and_can_be_cancelled(world, mcp_server):
    script(world, ORDERING, said("Done."), ORDERING)
    responses = world.client().responses
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[tool(mcp_server)])
    await eventually(lambda: world.state.kept[begun.id].turn.response["status"] == "completed")
    done = await responses.retrieve(begun.id)
    assert [item.type for item in done.output] == ["mcp_list_tools", "mcp_call", "message"]
    mcp_server.hold = asyncio.Event()
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[tool(mcp_server)])
    await eventually(lambda: len(mcp_server.calls) == 2)
    assert (await responses.cancel(begun.id)).status == "cancelled"
    await eventually(lambda: mcp_server.num_interrupted)


async def taken_over(world, **body):
    """Return how a background response ends whose process goes while its model is asked."""
    num_asked = len(world.chat.requests)
    scripts = [Script([asyncio.Event()], USAGE)]
    world.chat.script = lambda request: scripts.pop() if scripts else Script(pieces(request, said("Hm.")), USAGE)
    async with world.http() as http:
        begun = (
            await http.post("/v1/responses", json={"model": MODEL, "input": "x", "background": True, **body})
        ).json()
    await eventually(lambda: len(world.chat.requests) > num_asked)
    for task in [task for runner in world.runners for task in runner._tasks]:
        task.cancel()
    world.app()
    world.runners[-1].watch()
    kept = world.state.kept
    await eventually(lambda: kept[begun["id"]].turn.response["status"] in ("completed", "failed"))
    return kept[begun["id"]].turn.response


async def test_a_response_is_taken_over_unless_it_needs_secrets_and_approved_calls_are_made_once(world, mcp_server):
    response = await taken_over(world, tools=[tool(mcp_server)])
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "message"]
    response = await taken_over(world, tools=[tool(mcp_server, authorization="a")])
    assert response["error"] == {"code": "server_error", "message": NOT_TAKEN_OVER}
    first = await ask_for_approval(world, mcp_server)
    more = {"previous_response_id": first["id"], "input": decide(first, True)}
    response = await taken_over(world, tools=[tool(mcp_server, require_approval=None)], **more)
    call, message = response["output"]
    assert (call["status"], call["approval_request_id"]) == ("completed", first["output"][-1]["id"])
    assert message["content"][0]["text"] == "Hm."
    assert len(mcp_server.calls) == 1


async def test_a_prompt_that_is_too_long_with_its_tools_says_so(world, mcp_server):
    def reject(request):
        return Script([RequestRejected("Too long.", param="messages", code="context_length_exceeded")])

    world.chat.script = reject
    final = await respond(world, tools=[tool(mcp_server)])
    assert final["error"] == {"code": "invalid_prompt", "message": "Too long."}


async def test_a_model_without_tools_is_refused_before_anything_is_asked(world, mcp_server):
    world.chat.card = dataclasses.replace(world.chat.card, has_tools=False)
    status, error = await refused(world, tools=[tool(mcp_server)])
    assert (status, error["param"]) == (400, "tools")
    assert mcp_server.requests == []


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
    body = {"model": MODEL, "input": "x", "tools": [tool(mcp_server, authorization=CANARY)]}
    line = orjson.dumps({"custom_id": "1", "method": "POST", "url": "/v1/responses", "body": body})
    client = world.client()
    file = await client.files.create(file=("lines.jsonl", line), purpose="batch")
    batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
    async with asyncio.timeout(60):
        while (batch := await client.batches.retrieve(batch.id)).status != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    told = (await client.files.content(batch.output_file_id)).content
    assert CANARY.encode() not in told
    answer = orjson.loads(told)["response"]["body"]
    assert of_type(answer, "mcp_call")[0]["output"] == "There are 7 nails."


async def test_the_agents_sdk_hands_it_over_and_approves(world, mcp_server):
    from agents import Agent, HostedMCPTool, OpenAIResponsesModel, RunConfig, Runner

    script(world, ORDERING, said("Ordered."))
    asked = []

    def approve(request):
        asked.append(request.data.name)
        return {"approve": True}

    hosted = HostedMCPTool(tool_config=tool(mcp_server, require_approval="always"), on_approval_request=approve)
    agent = Agent(name="Clerk", model=OpenAIResponsesModel(MODEL, world.client()), tools=[hosted])
    result = await Runner.run(agent, "Order nails.", run_config=RunConfig(tracing_disabled=True))
    assert (result.final_output, asked) == ("Ordered.", ["order"])
    assert mcp_server.calls == [("order", ("nails", 3))]
