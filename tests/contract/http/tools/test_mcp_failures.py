"""Remote MCP servers that refuse, fail or take too long, and requests for them that are refused."""

import asyncio
import dataclasses

import openai
import pytest

from deployments.models.contract.errors import RequestRejected
from deployments.tools.config import McpConfig, OutboundConfig
from deployments.tools.mcp.client import McpServers, McpSession
from serve_app.operations.mcp import RemoteMcp
from serve_app.operations.responses.tools.contract import ToolBounds
from tests.contract.http.answers import MODEL, said
from tests.contract.http.mcp_calls import NAILS, ORDER, ORDERING, PRINT, STOCK, offered, refused, respond, stream, tool
from tests.contract.http.response_calls import WEATHER, calling, calls, messages, of_type, script
from tests.contract.http.tool_calls import leave
from tests.twins.engine import Script
from tests.twins.legal import fold


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


@pytest.mark.parametrize("path", ["", "/mcp"])
async def test_servers_of_the_operators_list_are_reached_wherever_they_are_and_no_others(world, mcp_server, path):
    config = McpConfig.model_validate({"allowed_servers": [mcp_server.url.removesuffix("/mcp") + path]})
    world.built_ins["mcp"] = RemoteMcp(McpServers(config, OutboundConfig().rules))
    script(world, NAILS, said("There are 7."))
    final = await respond(world, tools=[{**tool(mcp_server), "server_url": f"{mcp_server.url}?key=1"}])
    assert [call["output"] for call in of_type(final, "mcp_call")] == ["There are 7 nails."]
    mcp_server.requests.clear()
    port = int(mcp_server.url.rpartition(":")[2].partition("/")[0])
    others = ["https://store.example/mcp", mcp_server.url.replace(f":{port}", f":{port + 1}")]
    others += [mcp_server.url.replace("127.0.0.1", "localhost"), mcp_server.url.replace("http:", "https:")]
    if path:
        others += [f"{mcp_server.url}/", f"{mcp_server.url}/../admin", f"{mcp_server.url}%2F..%2Fadmin"]
    for url in others:
        status, error = await refused(world, tools=[{**tool(mcp_server), "server_url": url}])
        assert (status, error["param"]) == (400, "tools[0].server_url")
        assert "allows other servers only. Ask the operator." in error["message"]
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


async def test_a_client_that_leaves_ends_the_call(world, mcp_server):
    mcp_server.hold = asyncio.Event()
    script(world, ORDERING)
    await leave(world, tool(mcp_server), lambda: mcp_server.calls, lambda: mcp_server.num_interrupted)


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
