"""The hosted shell as a tool of a response: the model writes commands, a container runs them."""

from typing import Any

import orjson

from deployments.tools.code_interpreter.messages import CodeRun, ContainerError
from serve_app.errors.api import ApiError
from serve_app.operations.containers.in_use import ContainerInUse
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.prompt.outputs import readable_json
from serve_app.operations.responses.tools.contract import SendEvent, ToolAnswer
from serve_app.schemas.responses.shell import ShellTool, command_events, read_action, shell_schema
from serve_app.validation.body import read_json_object

_MAX_CHARS = 100_000
"""Of the output of a call: in JSON it is then less than a sandbox may print."""
_DESCRIPTION = (
    "Runs shell commands in a container, one after the other, and returns what they print. The working folder is "
    "/mnt/data, whose files stay between calls. There is no network. To give the user a file, write it into /mnt/data "
    "and link to it as [name](sandbox:/mnt/data/name).{files}"
)
_NO_COMMANDS = 'The shell was called without commands. Call it with {"commands": ["..."]}.'
_EVENT = "response.shell_call_output_content.done"
_TIME_IS_UP = {"type": "timeout"}
_FAILED = {"type": "exit", "exit_code": 1}
_SCRIPT = """
import json, os, signal, subprocess, tempfile, time

def read(file):
    global room
    file.seek(0)
    text = file.read(4 * room).decode("utf-8", "replace")[:room]
    room -= len(text)
    return text

room, ends, outputs = asked["room"], time.monotonic() + asked["timeout_s"], []
for command in asked["commands"]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd="/mnt/data",
            start_new_session=True,
        )
        try:
            outcome = {"type": "exit", "exit_code": started.wait(max(0, ends - time.monotonic()))}
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            outcome = {"type": "timeout"}
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        outputs.append({"stdout": read(out), "stderr": read(err), "outcome": outcome})
    if outcome["type"] == "timeout":
        break
print(json.dumps(outputs, ensure_ascii=False))
"""
"""Runs in a container's interpreter, in a namespace of its own."""


class ShellInUse(ContainerInUse):
    """The hosted shell within one response."""

    field = "environment"

    def functions(self) -> list[Item]:
        """Return the function that the model may call."""
        names = ", ".join(file.filename for file in self._files)
        description = _DESCRIPTION.format(files=f" The user has put there: {names}." if names else "")
        function = {"name": ShellTool.called, "description": description, "parameters": shell_schema(), "strict": True}
        return [{"type": "function", "function": function}]

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call."""
        action = read_action(read_json_object(arguments) or {})
        return {
            "id": new_id(ShellTool.id_prefix),
            "type": ShellTool.call_type,
            "status": "in_progress",
            "call_id": new_id("call"),
            "action": action or {"commands": [], "timeout_ms": None, "max_output_length": None},
            "environment": {"type": "container_reference", "container_id": self._next_id},
        }

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Run the commands of a call; cancelling this stops them."""
        action = item["action"]
        if not action["commands"]:
            return ToolAnswer({**item, "status": "incomplete"}, _NO_COMMANDS)
        for kind, fields in command_events(action["commands"]):
            send(kind, **fields)
        try:
            shown_id = item["environment"]["container_id"]
            result, note, container_id = await self._run(self._code_of(action), shown_id)
        except (ApiError, ContainerError) as error:
            return self._answer(item, [{"stdout": "", "stderr": error.message, "outcome": _FAILED}])
        outputs = _outputs_of(result)
        if note:
            outputs[0]["stderr"] = f"{note}\n{outputs[0]['stderr']}"
        finished = {**item, "environment": {**item["environment"], "container_id": container_id}}
        return self._answer(finished, outputs)

    def _code_of(self, action: Item) -> str:
        """Return the Python that runs the commands, within the bounds that were asked for and those that hold."""
        most_s = self._containers.config.call_timeout_s
        asked = {
            "commands": action["commands"],
            "timeout_s": most_s if action["timeout_ms"] is None else min(most_s, max(0, action["timeout_ms"]) / 1000),
            "room": _MAX_CHARS
            if action["max_output_length"] is None
            else min(_MAX_CHARS, max(0, action["max_output_length"])),
        }
        return f"exec({_SCRIPT!r}, {{'asked': {asked!r}}})"

    def _answer(self, item: Item, outputs: list[Item]) -> ToolAnswer:
        output = {
            "id": new_id("sho"),
            "type": "shell_call_output",
            "status": "completed",
            "call_id": item["call_id"],
            "max_output_length": item["action"]["max_output_length"],
            "output": outputs,
        }
        tells = [(_EVENT, {"command_index": index, "output": [one]}) for index, one in enumerate(outputs)]
        told = readable_json(outputs)
        return ToolAnswer(
            {**item, "status": "completed"}, told, cites=self._written.to_json(), follows=output, tells=tells
        )


def _outputs_of(result: CodeRun) -> list[Item]:
    """Return what each command has printed, and how it ended. Code in the container can forge it: it is only data."""
    lines = result.logs.strip("\n").split("\n")
    outputs: Any = None
    if lines and result.status == "ok":
        try:
            outputs = orjson.loads(lines[-1])
        except orjson.JSONDecodeError:
            outputs = None
    read = [one for one in map(_output_of, outputs if isinstance(outputs, list) else ()) if one is not None]
    if read:
        return read
    outcome = _TIME_IS_UP if result.status == "interrupted" else _FAILED
    reason = f"[The commands were stopped: {result.reason}]" if result.reason else ""
    return [{"stdout": "", "stderr": reason or result.logs[:_MAX_CHARS], "outcome": outcome}]


def _output_of(value: Any) -> Item | None:
    """Return one output, None if it does not have the form of one."""
    match value:
        case {"stdout": str(stdout), "stderr": str(stderr), "outcome": {"type": "timeout"}}:
            return {"stdout": stdout, "stderr": stderr, "outcome": _TIME_IS_UP}
        case {"stdout": str(stdout), "stderr": str(stderr), "outcome": {"type": "exit", "exit_code": int(code)}}:
            return {"stdout": stdout, "stderr": stderr, "outcome": {"type": "exit", "exit_code": code}}
    return None
