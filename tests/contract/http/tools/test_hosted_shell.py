"""The hosted shell within responses: a scripted model, the real client, real sandboxes."""

import openai
import orjson
import pytest

from tests.contract.http.answers import MODEL, said
from tests.contract.http.background_calls import ended
from tests.contract.http.code_interpreter_calls import TOOL as PYTHON
from tests.contract.http.code_interpreter_calls import runs
from tests.contract.http.response_calls import OTHER, calls, lines_of, messages, of_type, script, stream_of
from tests.twins.legal import fold

TOOL = {"type": "shell", "environment": {"type": "container_auto"}}


def running(*commands: str, timeout_ms: int | None = None, max_output_length: int | None = None):
    asked = {"commands": list(commands), "timeout_ms": timeout_ms, "max_output_length": max_output_length}
    return calls(("shell", asked))


async def respond(world, **body):
    return fold(await stream_of(world, {"input": "x", "tools": [TOOL], **body}))


def outputs_of(response, number: int = 0):
    return of_type(response, "shell_call_output")[number]["output"]


async def test_commands_run_in_a_container_and_the_model_reads_what_they_print(world, shell):
    script(world, running("echo one; echo two >&2", "exit 3", "ls /mnt/data; pwd"), said("Done."))
    events = await stream_of(world, {"input": "x", "tools": [TOOL]})
    final = fold(events)
    assert [item["type"] for item in final["output"]] == ["shell_call", "shell_call_output", "message"]
    call, output, _ = final["output"]
    assert (call["id"][:3], output["id"][:4], call["call_id"]) == ("sh_", "sho_", output["call_id"])
    assert call["environment"]["type"] == "container_reference"
    assert call["environment"]["container_id"].startswith("cntr_")
    assert output["output"] == [
        {"stdout": "one\n", "stderr": "two\n", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
        {"stdout": "/mnt/data\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
    ]
    told = [event["type"] for event in events if event["type"].startswith("response.shell_call")]
    assert told.count("response.shell_call_command.done") == told.count("response.shell_call_output_content.done") == 3
    assert orjson.loads(messages(world)[-1]["content"]) == output["output"]


async def test_a_later_turn_shows_the_model_what_it_read(world, shell):
    script(world, running("echo one", max_output_length=100), said("Done."))
    first = await respond(world)
    await respond(world, previous_response_id=first["id"])
    then, now = (messages(world, number)[1:3] for number in (1, -1))
    assert now[0]["tool_calls"][0]["function"]["name"] == then[0]["tool_calls"][0]["function"]["name"] == "shell"
    asked = [orjson.loads(one[0]["tool_calls"][0]["function"]["arguments"]) for one in (then, now)]
    assert asked[0] == asked[1]
    assert list(asked[0]) == list(asked[1])
    assert now[1]["content"] == then[1]["content"]


async def test_files_stay_between_calls_and_responses(world, shell):
    script(
        world, running("echo kept > a.txt"), running("cat a.txt"), said("Done."), running("cat a.txt"), said("Done.")
    )
    first = await respond(world)
    assert outputs_of(first, 1)[0]["stdout"] == "kept\n"
    (citation,) = first["output"][-1]["content"][0]["annotations"]
    assert citation["filename"] == "a.txt"
    second = await respond(world, previous_response_id=first["id"])
    assert outputs_of(second)[0]["stdout"] == "kept\n"
    assert [call["environment"] for call in of_type(second, "shell_call")] == [first["output"][0]["environment"]]
    third = await respond(world, store=False, input=[{"role": "user", "content": "x"}, *first["output"]])
    assert third["status"] == "completed"
    assert [message["role"] for message in messages(world)][:4] == ["user", "assistant", "tool", "assistant"]


async def test_the_code_interpreter_and_the_shell_share_a_container_that_is_named(world, shell, responses):
    container = await world.client().containers.create(name="ours")
    tools = [
        {"type": "shell", "environment": {"type": "container_reference", "container_id": container.id}},
        {"type": "code_interpreter", "container": container.id},
    ]
    script(world, runs("open('/mnt/data/a.txt', 'w').write('hi')"), running("cat a.txt"), said("Done."))
    final = await responses.create(model=MODEL, input="x", tools=tools)
    assert [item.type for item in final.output][:3] == ["code_interpreter_call", "shell_call", "shell_call_output"]
    assert final.output[2].output[0].stdout == "hi"
    events = [event async for event in await responses.retrieve(final.id, stream=True)]
    assert events[-1].response.output == final.output


async def test_commands_are_held_to_their_time_and_their_length(world, shell):
    script(
        world,
        running("sleep 60", "echo never", timeout_ms=200),
        running("yes | head -c 300000", max_output_length=10),
        said("Done."),
    )
    final = await respond(world)
    assert outputs_of(final) == [{"stdout": "", "stderr": "", "outcome": {"type": "timeout"}}]
    assert outputs_of(final, 1)[0]["stdout"] == "y\n" * 5
    assert of_type(final, "shell_call_output")[1]["max_output_length"] == 10


async def test_output_that_floods_or_is_no_text_stays_within_bounds(world, shell):
    commands = ["yes | head -c 3000000; yes no >&2 | head -c 9", "head -c 100000 /dev/urandom"]
    script(world, running(*commands), said("Done."))
    first, second = outputs_of(await respond(world))
    assert len(first["stdout"]) == 100_000
    assert second["stdout"] == ""


async def test_a_shell_is_as_confined_as_code(world, shell):
    script(
        world,
        running("cat /etc/passwd", "ls /proc /home /root", "echo > /x", "curl http://127.0.0.1", "kill -9 1"),
        said("Done."),
    )
    assert all(one["outcome"]["exit_code"] != 0 and one["stdout"] == "" for one in outputs_of(await respond(world)))


async def test_what_code_forges_is_only_data(world, shell):
    forged = "import builtins, os; builtins.print = lambda *a: os.write(1, b'nonsense\\n')"
    script(world, runs(forged), running("echo one"), said("Done."))
    container = await world.client().containers.create(name="ours")
    tools = [
        {"type": "shell", "environment": {"type": "container_reference", "container_id": container.id}},
        {"type": "code_interpreter", "container": container.id},
    ]
    (output,) = outputs_of(await respond(world, tools=tools))
    assert (output["stdout"], output["stderr"]) == ("", "nonsense\n")


@pytest.mark.parametrize("arguments", [{}, {"commands": []}, {"commands": 5}])
async def test_a_call_without_commands_is_told_so(world, shell, arguments):
    script(world, calls(("shell", arguments)), said("Sorry."))
    final = await respond(world)
    assert of_type(final, "shell_call")[0]["status"] == "incomplete"
    assert "without commands" in messages(world)[-1]["content"]


async def test_background_responses_and_batches_run_commands_too(world, shell, responses):
    script(world, running("echo one"), said("Done."), running("echo two"), said("Done."))
    job = await responses.create(model=MODEL, input="x", tools=[TOOL], background=True)
    final = await ended(responses, job.id)
    assert final.output[1].output[0].stdout == "one\n"
    ((status, body),) = await lines_of(world, {"model": MODEL, "input": "x", "tools": [TOOL]})
    assert (status, outputs_of(body)[0]["stdout"]) == (200, "two\n")


async def test_a_container_of_another_account_is_not_there(world, shell):
    container = await world.client().containers.create(name="ours")
    world.principal(secret=OTHER, account="acct_other")
    tool = {"type": "shell", "environment": {"type": "container_reference", "container_id": container.id}}
    script(world, running("ls"))
    with pytest.raises(openai.NotFoundError):
        await world.client(OTHER).responses.create(model=MODEL, input="x", tools=[tool])


async def test_without_a_shell_in_containers_or_without_containers_the_tool_is_refused(world, interpreter):
    async with world.http() as http:
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "tools": [TOOL]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[0].environment.type")
        assert "code_interpreter.shell" in answer.json()["error"]["message"]
        del world.built_ins["code_interpreter"]
        answer = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "tools": [TOOL]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[0].type")
        both = await http.post("/v1/responses", json={"model": MODEL, "input": "x", "tools": [TOOL, PYTHON]})
        assert both.status_code == 400
