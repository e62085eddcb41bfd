"""The loop that runs tools inside the service, with tools that do what a script says."""

import asyncio

import orjson
import pytest

from deployments.models.contract.engine import Usage
from deployments.models.contract.events import Finished, TextDelta
from serve_app.operations.responses.tools.contract import CALL_FAILED, CUT, NO_MORE_CALLS, TIME_IS_UP, ToolBounds
from tests.contract.http.answers import MODEL, USAGE, pieces, said
from tests.contract.http.batch_calls import run_responses
from tests.contract.http.response_calls import WEATHER, calling, messages, script
from tests.contract.http.tool_calls import SEARCH, SEARCHING, ScriptedTool, leave
from tests.twins.engine import Script
from tests.twins.legal import fold, split
from tests.waiting import eventually


@pytest.fixture
def tool(world) -> ScriptedTool:
    made = world.built_ins["code_interpreter"] = ScriptedTool()
    return made


async def stream(world, **body):
    async with world.http() as http:
        answer = await http.post(
            "/v1/responses", json={"model": MODEL, "input": "x", "stream": True, "tools": [SEARCHING], **body}
        )
    assert answer.status_code == 200, answer.text
    return split(answer.content)


async def test_a_call_is_an_item_with_its_events_and_the_model_goes_on(world, tool):
    tool.usage = Usage(prompt_tokens=5, completion_tokens=1)
    script(world, SEARCH, said("Sunny it is."))
    events = await stream(world)
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["message", "web_search_call", "message"]
    assert [e["type"].rpartition(".")[2] for e in events if "web_search_call." in e["type"]] == [
        "in_progress",
        "searching",
        "completed",
    ]
    assert final["output"][1]["action"] == {"type": "search", "query": '{"q":"a"}'}
    assert final["usage"]["total_tokens"] == 2 * USAGE.total_tokens + 6
    assert world.gatekeeper.settled[-1][2] == 2 * USAGE.total_tokens + 6
    assert messages(world)[1:] == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "web_search", "arguments": '{"q":"a"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."},
    ]
    assert len({request.request_id for request in world.chat.requests}) == 2


async def test_what_a_tool_answered_is_there_in_the_next_turn_and_in_the_replay(world, tool):
    script(world, SEARCH, said("Sunny it is."), said("Yes."))
    events = await stream(world)
    response_id = events[0]["response"]["id"]
    async with world.http() as http:
        assert split((await http.get(f"/v1/responses/{response_id}?stream=true")).content) == events
    await stream(world, previous_response_id=response_id, input="Sure?")
    assert [m["role"] for m in messages(world)] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages(world)[2]["content"] == "Sunny."


async def test_calls_are_bounded_in_number(world, tool):
    script(world, SEARCH)  # For ever.
    final = fold(await stream(world, max_tool_calls=3))
    assert len(tool.asked) == 3
    assert [item["type"] for item in final["output"]].count("web_search_call") == 3
    asked = orjson.loads(world.chat.requests[-1].body)
    assert "tools" not in asked
    assert final["status"] == "completed"


async def test_calls_beyond_the_bound_in_one_go_are_told_so(world, tool):
    both = calling(("call_1", "web_search", "{}"), ("call_2", "web_search", "{}"))
    script(world, both, said("Enough."))
    fold(await stream(world, max_tool_calls=1))
    assert len(tool.asked) == 1
    assert [m["content"] for m in messages(world)[2:]] == ["Sunny.", NO_MORE_CALLS]


async def test_output_is_bounded(world, tool):
    tool.output = "x" * 200_000
    script(world, SEARCH, said("Long."))
    fold(await stream(world))
    assert messages(world)[2]["content"] == "x" * 100_000 + CUT


async def test_time_is_bounded(world, tool, monkeypatch):
    monkeypatch.setattr("serve_app.operations.responses.operation.ToolBounds", lambda: ToolBounds(max_s=0.05))
    tool.hold = asyncio.Event()
    script(world, SEARCH, said("Too slow."))
    final = fold(await stream(world))
    assert tool.was_cancelled
    assert final["output"][1]["status"] == "failed"
    assert messages(world)[2]["content"] == TIME_IS_UP
    assert final["status"] == "completed"


async def test_a_tool_that_breaks_fails_its_call_only(world, tool, caplog):
    tool.error = RuntimeError("secret")
    script(world, SEARCH, said("Sorry."))
    final = fold(await stream(world))
    assert final["output"][1]["status"] == "failed"
    assert messages(world)[2]["content"] == CALL_FAILED
    assert "secret" not in str(final)
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_functions_of_the_client_end_the_turn_also_beside_the_services(world, tool):
    both = calling(("call_1", "web_search", "{}"), ("call_2", "weather", "{}"))
    script(world, both, said("Done."))
    first = fold(await stream(world, tools=[WEATHER, SEARCHING]))
    assert [item["type"] for item in first["output"]] == ["function_call", "web_search_call"]
    assert len(world.chat.requests) == 1
    output = {"type": "function_call_output", "call_id": "call_2", "output": "Rain."}
    final = fold(await stream(world, tools=[WEATHER, SEARCHING], previous_response_id=first["id"], input=[output]))
    assert final["status"] == "completed"
    told = messages(world)
    answers = {m["tool_call_id"]: m["content"] for m in told if m["role"] == "tool"}
    assert answers["call_2"] == "Rain."
    assert "Sunny." in answers.values()


async def test_a_client_that_leaves_cancels_the_tool(world, tool):
    tool.hold = asyncio.Event()
    script(world, SEARCH)
    await leave(world, SEARCHING, lambda: tool.asked, lambda: tool.was_cancelled)
    assert world.stored.count() == 0
    assert world.gatekeeper.settled[-1][2] == USAGE.total_tokens


async def test_cancelling_a_background_response_cancels_its_tool(world, tool):
    tool.hold = asyncio.Event()
    script(world, SEARCH)
    responses = world.client().responses
    begun = await responses.create(model=MODEL, input="x", background=True, tools=[SEARCHING])
    await eventually(lambda: tool.asked)
    cancelled = await responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert tool.was_cancelled


async def test_text_cut_off_at_a_call_ends_the_response(world, tool):
    cut = [
        [TextDelta("text", 0, "Let me")],
        *calling(("call_1", "web_search", "{"))[:-1],
        [Finished("finished", 0, "length")],
    ]
    script(world, cut)
    final = fold(await stream(world))
    assert final["status"] == "incomplete"
    assert not tool.asked


async def test_a_tool_is_opened_with_what_the_response_is_made_from(world, tool):
    script(world, SEARCH, said("Found."), said("Again."))
    first = fold(await stream(world, include=["code_interpreter_call.outputs"]))
    (definition, context), *_ = tool.opened
    assert definition.container.type == "auto"
    assert context.principal.account == "acct_1"
    assert context.include == {"code_interpreter_call.outputs"}
    assert context.param == "tools[0]"
    assert [item["type"] for item in context.items] == ["message"]
    fold(await stream(world, previous_response_id=first["id"]))
    kinds = [item["type"] for item in tool.opened[-1][1].items]
    assert kinds == ["message", "message", "web_search_call", "message", "message"]
    assert tool.num_closed == 2
    assert first["tools"] == [{"type": "code_interpreter", "container": {"type": "auto"}}]


async def test_a_response_that_does_not_name_the_tool_is_not_offered_it(world, tool):
    script(world, said("Hello."))
    fold(await stream(world, tools=[WEATHER]))
    assert not tool.opened
    assert [one["function"]["name"] for one in orjson.loads(world.chat.requests[0].body)["tools"]] == ["weather"]


async def refused(world, **body):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "tools": [SEARCHING], **body})
    return answer.status_code, answer.json()["error"]


async def test_a_tool_that_is_not_switched_on_is_a_400_that_names_it(world):
    status, error = await refused(world)
    assert (status, error["code"], error["param"]) == (400, "unsupported_value", "tools[0].type")
    assert "'code_interpreter' is not switched on" in error["message"]
    assert not world.chat.requests


@pytest.mark.parametrize("kind", ["computer", "programmatic_tool_calling"])
async def test_a_refused_tool_comes_with_those_that_the_service_has(world, tool, kind):
    status, error = await refused(world, tools=[WEATHER, {"type": kind, "anything": 1}])
    assert (status, error["code"], error["param"]) == (400, "unsupported_value", "tools[1].type")
    assert f"no tool '{kind}'" in error["message"]
    assert "'function', 'custom', 'namespace', 'shell'" in error["message"]
    assert "'code_interpreter'." in error["message"]
    assert "web_search" not in error["message"]


async def test_a_key_without_the_scope_may_not_use_the_tool(world, tool):
    world.principal(operations=frozenset({"responses"}))
    status, error = await refused(world)
    assert (status, error["code"]) == (403, "insufficient_permissions")
    assert "code_interpreter" in error["message"]
    world.principal(operations=frozenset({"responses", "code_interpreter"}))
    script(world, said("Hello."))
    fold(await stream(world))


async def test_a_tool_twice_and_a_function_of_its_name_are_refused(world, tool):
    status, error = await refused(world, tools=[SEARCHING, SEARCHING])
    assert (status, error["param"]) == (400, "tools[1]")
    status, error = await refused(world, tools=[SEARCHING, {"type": "function", "name": "web_search"}])
    assert (status, error["param"]) == (400, "tools[0]")


def chosen(world, number):
    body = orjson.loads(world.chat.requests[number].body)
    return body.get("tool_choice"), [one["function"]["name"] for one in body.get("tools", ())]


@pytest.mark.parametrize(
    ("choice", "first", "names"),
    [
        ("required", "required", ["weather", "web_search"]),
        ({"type": "code_interpreter"}, {"type": "function", "function": {"name": "web_search"}}, None),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "code_interpreter"}]},
            "required",
            ["web_search"],
        ),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
            "auto",
            ["weather"],
        ),
    ],
)
async def test_the_choice_of_a_tool_is_for_the_first_call(world, tool, choice, first, names):
    script(world, SEARCH, said("Found."))
    fold(await stream(world, tools=[WEATHER, SEARCHING], tool_choice=choice))
    assert chosen(world, 0) == (first, names or ["weather", "web_search"])
    assert chosen(world, 1)[0] == "auto"


async def test_a_choice_of_a_tool_that_is_not_named_is_refused(world, tool):
    status, error = await refused(world, tools=[WEATHER], tool_choice={"type": "code_interpreter"})
    assert (status, error["param"]) == (400, "tool_choice.type")


async def test_no_parallel_calls_are_asked_for_where_they_are_forbidden(world, tool):
    script(world, SEARCH, said("Found."))
    final = fold(await stream(world, parallel_tool_calls=False))
    assert final["parallel_tool_calls"] is False
    assert orjson.loads(world.chat.requests[0].body)["parallel_tool_calls"] is False


async def test_citations_are_annotations_in_their_place_and_in_the_replay(world, tool):
    tool.note = "it is"
    script(world, SEARCH, said("Sunny ", "it is."))
    events = await stream(world)
    final = fold(events)
    (annotation,) = final["output"][-1]["content"][0]["annotations"]
    assert (annotation["start_index"], annotation["end_index"]) == (6, 7)
    assert final["output"][0]["content"][0]["annotations"] == []
    async with world.http() as http:
        assert split((await http.get(f"/v1/responses/{final['id']}?stream=true")).content) == events


async def test_a_response_that_another_replica_takes_over_still_has_its_tools(world, tool):
    """What is taken over before anybody saw it begins again, with the tools that the request names."""
    hold = asyncio.Event()
    scripts = [Script([hold], USAGE)]

    def play(request):
        return (
            scripts.pop() if scripts else Script(pieces(request, SEARCH if not tool.asked else said("Found.")), USAGE)
        )

    world.chat.script = play
    begun = await world.client().responses.create(model=MODEL, input="x", background=True, tools=[SEARCHING])
    await eventually(lambda: world.chat.requests)
    for task in list(world.runners[0]._tasks):
        task.cancel()
    world.app()
    world.runners[-1].watch()
    await eventually(lambda: world.stored.status(begun.id) == "completed", 20)
    kinds = [item["type"] for item in (await world.stored.turns())[begun.id].response["output"]]
    assert kinds == ["message", "web_search_call", "message"]


async def test_a_batch_line_calls_the_tool_too(world, tool, batching, file_store):
    script(world, SEARCH, said("Found."))
    told = orjson.loads(await run_responses(world, tools=[SEARCHING]))
    assert [item["type"] for item in told["response"]["body"]["output"]] == ["message", "web_search_call", "message"]
