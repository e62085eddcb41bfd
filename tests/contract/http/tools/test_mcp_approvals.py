"""Calls of remote MCP servers that wait for approval: made once, declined, kept by either side, taken over."""

import asyncio
from dataclasses import replace

from serve_app.operations.responses.background.runner import NOT_TAKEN_OVER
from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.mcp_calls import (
    NAILS,
    ORDER,
    ORDERING,
    STOCK,
    ask_for_approval,
    decide,
    offered,
    refused,
    respond,
    tool,
)
from tests.contract.http.response_calls import WEATHER, calls, messages, of_type, script
from tests.twins.engine import Script
from tests.waiting import eventually


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


async def taken_over(world, **body):
    """Return how a background response ends whose process stops while its model is asked, before it kept much."""
    world.timing = replace(world.timing, group_s=0.5)
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
    await eventually(lambda: world.stored.status(begun["id"]) in ("completed", "failed"))
    return (await world.stored.turns())[begun["id"]].response


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
