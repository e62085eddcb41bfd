"""The tools of OpenAI's Agents SDK that run at the client, or come later: shells, patches, namespaces, the search."""

import asyncio

import orjson
from agents import (
    Agent,
    ApplyPatchTool,
    LocalShellTool,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
    ToolSearchTool,
    apply_diff,
    function_tool,
    tool_namespace,
)
from agents.editor import ApplyPatchResult

from tests.contract.http.answers import MODEL, said
from tests.contract.http.response_calls import calling, messages, script

QUIET = RunConfig(tracing_disabled=True)


class Files:
    """An editor over files in memory."""

    def __init__(self) -> None:
        self.texts = {"a.py": "print(1)\nprint(2)\n"}

    def create_file(self, operation):
        self.texts[operation.path] = apply_diff("", operation.diff, mode="create")
        return ApplyPatchResult(output=f"{operation.path} was created.")

    def update_file(self, operation):
        self.texts[operation.path] = apply_diff(self.texts[operation.path], operation.diff)
        return ApplyPatchResult(output=f"{operation.path} was changed.")

    def delete_file(self, operation):
        del self.texts[operation.path]
        return ApplyPatchResult(output=f"{operation.path} was deleted.")


async def run_in_shell(request):
    outputs = []
    for command in request.data.action.commands:
        process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
        printed, _ = await process.communicate()
        outcome = ShellCallOutcome(type="exit", exit_code=process.returncode)
        outputs.append(ShellCommandOutput(stdout=printed.decode(), outcome=outcome))
    return ShellResult(output=outputs)


async def run_locally(request):
    process = await asyncio.create_subprocess_exec(*request.data.action.command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    return printed.decode()


def calls(*wanted, number=0):
    """Return the events of a model that calls functions, in a generation of this number."""
    told = [(f"call_{number}_{n}", name, orjson.dumps(fields).decode()) for n, (name, fields) in enumerate(wanted)]
    return calling(*told)


def shell(*commands):
    return "shell", {"commands": list(commands), "timeout_ms": None, "max_output_length": None}


def patch(**operation):
    return "apply_patch", {"operation": operation}


async def run(world, *tools, streamed=False, **options):
    agent = Agent(
        name="Coder", instructions="Do it.", model=OpenAIResponsesModel(MODEL, world.client()), tools=list(tools)
    )
    if not streamed:
        return (await Runner.run(agent, "Do it.", run_config=QUIET, **options)).final_output
    result = Runner.run_streamed(agent, "Do it.", run_config=QUIET, **options)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def test_the_shell_runs_commands_and_the_model_reads_what_they_print(world):
    for streamed in (False, True):
        script(world, calls(shell("echo one", "exit 3")), said("Done."))
        assert await run(world, ShellTool(executor=run_in_shell), streamed=streamed) == "Done."
        told = orjson.loads(messages(world)[-1]["content"])
        assert [one["stdout"] for one in told] == ["one\n", ""]
        assert told[1]["outcome"] == {"type": "exit", "exit_code": 3}


async def test_the_older_shell_runs_a_command(world):
    script(
        world,
        calls(("local_shell", {"command": ["echo", "one"], "timeout_ms": None, "working_directory": None})),
        said("Done."),
    )
    assert await run(world, LocalShellTool(executor=run_locally)) == "Done."
    assert messages(world)[-1]["content"] == "one\n"


async def test_patches_create_change_and_delete_files(world):
    files = Files()
    script(
        world,
        calls(patch(type="create_file", path="b.py", diff="+print(3)\n+print(4)")),
        calls(patch(type="update_file", path="a.py", diff="@@\n-print(1)\n+print(0)\n print(2)"), number=1),
        calls(patch(type="delete_file", path="b.py"), number=2),
        said("Done."),
    )
    assert await run(world, ApplyPatchTool(editor=files), auto_previous_response_id=True) == "Done."
    assert files.texts == {"a.py": "print(0)\nprint(2)\n"}
    assert "deleted" in str(messages(world)[-1]["content"])


@function_tool
def balance(account: str) -> str:
    """Tell the balance of an account."""
    return f"{account} has 7."


@function_tool(defer_loading=True)
def transfer(account: str) -> str:
    """Move money to an account."""
    return f"{account} has it."


async def test_a_namespace_is_called_by_its_name(world):
    script(world, calls(("bank__balance", {"account": "A"})), said("Seven."))
    tools = tool_namespace(name="bank", description="The bank.", tools=[balance])
    assert await run(world, *tools) == "Seven."
    assert messages(world)[-1]["content"] == "A has 7."


async def test_a_deferred_function_is_searched_for_and_called(world):
    for options in ({}, {"auto_previous_response_id": True}, {"streamed": True}):
        script(
            world,
            calls(("tool_search", {"query": "move money"})),
            calls(("bank__transfer", {"account": "A"}), number=1),
            said("Done."),
        )
        tools = tool_namespace(name="bank", description="The bank.", tools=[balance, transfer])
        assert await run(world, *tools, ToolSearchTool(), **options) == "Done."
        assert messages(world)[-1]["content"] == "A has it."
        names = [one["function"]["name"] for one in orjson.loads(world.chat.requests[-1].body)["tools"]]
        assert names == ["bank__balance", "bank__transfer", "tool_search"]


async def test_a_deferred_function_without_a_namespace_too(world):
    script(
        world,
        calls(("tool_search", {"query": "money"})),
        calls(("transfer", {"account": "A"}), number=1),
        said("Done."),
    )
    assert await run(world, transfer, ToolSearchTool()) == "Done."
    assert messages(world)[-1]["content"] == "A has it."
