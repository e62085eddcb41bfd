"""Shells and patches that the client runs: functions to the model, items of their own type to the client."""

import orjson
import pytest

from deployments.models.contract.events import Finished, ToolArgumentsDelta, ToolCallStart
from tests.contract.http.answers import MODEL, said
from tests.contract.http.background_calls import ended
from tests.contract.http.response_calls import WEATHER, calling, messages, script, stream_of, token_by_token
from tests.twins.legal import fold

TOOLS = [{"type": "shell", "environment": {"type": "local"}}, {"type": "local_shell"}, {"type": "apply_patch"}]
LS = '{"commands":["ls","pwd"],"timeout_ms":1000,"max_output_length":null}'
RUN = '{"command":["ls","-l"],"timeout_ms":null,"working_directory":"/src"}'
PATCH = '{"operation":{"type":"update_file","path":"a.py","diff":"@@\\n-a\\n+b"}}'
DELETE = '{"operation":{"type":"delete_file","path":"a.py"}}'
ITEMS = {
    "shell": (
        LS,
        {
            "type": "shell_call",
            "action": {"commands": ["ls", "pwd"], "timeout_ms": 1000, "max_output_length": None},
            "environment": {"type": "local"},
        },
        {
            "type": "shell_call_output",
            "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
            "max_output_length": None,
        },
    ),
    "local_shell": (
        RUN,
        {
            "type": "local_shell_call",
            "action": {
                "type": "exec",
                "command": ["ls", "-l"],
                "env": {},
                "timeout_ms": None,
                "working_directory": "/src",
            },
        },
        {"type": "local_shell_call_output", "output": "a.py"},
    ),
    "apply_patch": (
        PATCH,
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"}},
        {"type": "apply_patch_call_output", "status": "completed", "output": "a.py was changed."},
    ),
}


def answer_to(call, output):
    """Return the output as clients send it: the older shell names the call by `id`."""
    return {**output, "id" if call["type"] == "local_shell_call" else "call_id": call["call_id"]}


@pytest.mark.parametrize("name", ITEMS)
async def test_a_call_is_an_item_of_its_own_type_and_comes_back_as_the_model_wrote_it(world, name):
    arguments, expected, output = ITEMS[name]
    script(world, calling(("call_1", name, arguments)), said("Done."))
    body = {"input": [{"role": "user", "content": "Do it."}], "tools": TOOLS, "store": False}
    first = fold(await stream_of(world, body))
    (call,) = first["output"]
    assert call == {"id": call["id"], "status": "completed", "call_id": "call_1", **expected}
    offered = {one["function"]["name"]: one["function"] for one in orjson.loads(world.chat.requests[0].body)["tools"]}
    assert list(offered) == ["shell", "local_shell", "apply_patch"]
    assert all(one["strict"] and one["parameters"]["additionalProperties"] is False for one in offered.values())
    await stream_of(world, {**body, "input": [*body["input"], call, answer_to(call, output)]})
    asked, told = messages(world)[-2:]
    assert asked["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    ]
    assert told["tool_call_id"] == "call_1"
    assert "a.py" in told["content"]


@pytest.mark.parametrize("name", ITEMS)
async def test_the_client_library_reads_and_continues_them(world, responses, name):
    arguments, expected, output = ITEMS[name]
    script(world, calling(("call_1", name, arguments)), said("Done."))
    first = await responses.create(model=MODEL, input="Do it.", tools=TOOLS)
    assert (first.output[0].type, first.output[0].call_id) == (expected["type"], "call_1")
    events = [event async for event in await responses.retrieve(first.id, stream=True)]
    assert events[-1].response.output == first.output
    sent = answer_to({"type": expected["type"], "call_id": "call_1"}, output)
    second = await responses.create(model=MODEL, previous_response_id=first.id, input=[sent], tools=TOOLS)
    assert second.output_text == "Done."
    assert messages(world)[-2]["tool_calls"][0]["function"]["arguments"] == arguments


async def test_commands_are_told_one_by_one(world):
    script(world, calling(("call_1", "shell", LS)))
    events = await stream_of(world, {"input": "x", "tools": TOOLS})
    told = [event for event in events if event["type"].startswith("response.shell_call_command.")]
    assert [event["type"].rpartition(".")[2] for event in told] == ["added", "delta", "done"] * 2
    assert [event["command"] for event in told if event["type"].endswith("done")] == ["ls", "pwd"]
    assert {event["command_index"] for event in told} == {0, 1}


async def test_a_file_is_deleted_without_a_diff(world):
    script(world, calling(("call_1", "apply_patch", DELETE)))
    (call,) = fold(await stream_of(world, {"input": "x", "tools": TOOLS}))["output"]
    assert call["operation"] == {"type": "delete_file", "path": "a.py"}


async def test_calls_side_by_side_stay_one_message_of_the_model(world):
    script(world, calling(("c1", "shell", LS), ("c2", "weather", "{}"), ("c3", "apply_patch", DELETE)), said("Done."))
    body = {"input": [{"role": "user", "content": "x"}], "tools": [*TOOLS, WEATHER], "store": False}
    first = fold(await stream_of(world, body))
    assert [item["type"] for item in first["output"]] == ["shell_call", "function_call", "apply_patch_call"]
    outputs = [
        {**ITEMS["shell"][2], "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c2", "output": "Rain."},
        {**ITEMS["apply_patch"][2], "call_id": "c3"},
    ]
    await stream_of(world, {**body, "input": [*body["input"], *first["output"], *outputs]})
    assert [message["role"] for message in messages(world)] == ["user", "assistant", "tool", "tool", "tool"]
    assert [call["id"] for call in messages(world)[1]["tool_calls"]] == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", '{"commands":[]}'),
        ("shell", '{"commands":"ls"}'),
        ("shell", "rm -rf"),
        ("shell", "[" * 100_000),
        ("apply_patch", '{"operation":{"type":"update_file","path":"a.py"}}'),
        ("apply_patch", '{"operation":{"type":"chmod","path":"a.py"}}'),
        ("local_shell", '{"command":["ls"],"user":"root"}'),
    ],
)
async def test_arguments_that_do_not_fit_are_shown_as_the_function_call_that_they_are(world, name, arguments):
    script(world, calling(("call_1", name, arguments)))
    (call,) = fold(await stream_of(world, {"input": "x", "tools": TOOLS}))["output"]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", name, arguments)


async def test_a_call_that_was_cut_off_is_not_run_by_a_client(world):
    whole = [
        [ToolCallStart("tool_call", 0, 0, "c", "apply_patch")],
        [ToolArgumentsDelta("tool_arguments", 0, 0, DELETE)],
    ]
    script(world, [*whole, [Finished("finished", 0, "length")]])
    final = fold(await stream_of(world, {"input": "x", "tools": TOOLS}))
    (call,) = final["output"]
    assert (final["status"], call["type"], call["status"]) == ("incomplete", "function_call", "incomplete")


async def test_a_background_response_shows_the_same_items(world, responses):
    script(world, token_by_token("shell", LS))
    job = await responses.create(model=MODEL, input="x", tools=TOOLS, background=True)
    final = await ended(responses, job.id)
    (call,) = final.output
    assert (call.type, call.status, call.action.commands) == ("shell_call", "completed", ["ls", "pwd"])
    events = [event async for event in await responses.retrieve(job.id, stream=True)]
    assert events[-1].response.output[0].id == call.id


async def test_built_in_tools_of_the_client_are_chosen_by_their_type(world):
    script(world, said("Done."))
    await stream_of(world, {"input": "x", "tools": TOOLS, "tool_choice": {"type": "apply_patch"}})
    chosen = {"type": "function", "function": {"name": "apply_patch"}}
    assert orjson.loads(world.chat.requests[-1].body)["tool_choice"] == chosen
    allowed = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "shell"}, {"type": "function", "name": "weather"}],
    }
    final = fold(await stream_of(world, {"input": "x", "tools": [*TOOLS, WEATHER], "tool_choice": allowed}))
    names = [one["function"]["name"] for one in orjson.loads(world.chat.requests[-1].body)["tools"]]
    assert names == ["shell", "weather"]
    assert final["tools"][:3] == TOOLS


async def test_the_skills_of_the_client_are_told_to_the_model(world):
    script(world, said("Done."))
    skill = {"name": "pdf", "description": "Reads PDFs.", "path": "/skills/pdf"}
    shell = {"type": "shell", "environment": {"type": "local", "skills": [skill]}}
    await stream_of(world, {"input": "x", "tools": [shell]})
    (offered,) = orjson.loads(world.chat.requests[-1].body)["tools"]
    assert "- pdf (/skills/pdf): Reads PDFs." in offered["function"]["description"]
