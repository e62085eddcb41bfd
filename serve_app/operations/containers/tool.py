"""The code interpreter as a tool of a response: the model writes Python, a container runs it.

A failed call does not fail the response: the model reads why. The same containers run the commands of hosted shells.
"""

import base64
from typing import Final

from deployments.models.contract.text_member import TextMember
from deployments.operations import Operation
from deployments.state.containers import ContainerStore
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.messages import CodeRun, ContainerError
from deployments.tools.config import CodeInterpreterConfig
from serve_app.errors.api import ApiError, BadRequest
from serve_app.operations.containers.files import path_in
from serve_app.operations.containers.in_use import ContainerInUse
from serve_app.operations.containers.service import Containers
from serve_app.operations.containers.shell import ShellInUse
from serve_app.operations.responses.events.server_call import FieldInWriting, ToolEvent
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.tools.contract import SendEvent, ToolAnswer, ToolContext, ToolResources, WritingTool
from serve_app.schemas.json_schema import object_schema
from serve_app.schemas.responses.code_interpreter import CodeInterpreterTool, NewContainerOptions
from serve_app.schemas.responses.shell import (
    CONTAINER_CALLS,
    ContainerReference,
    ShellContainer,
    ShellTool,
    container_of,
)
from serve_app.validation.body import is_json_object

EVENT: Final = "response.code_interpreter_call"
TYPE: Final = Operation.CODE_INTERPRETER
OUTPUTS: Final = "code_interpreter_call.outputs"
_MAX_SHOWN_IMAGE_BYTES = 8 * 1024 * 1024
_STATUSES = {"ok": "completed", "error": "completed", "interrupted": "incomplete", "died": "failed"}
_DESCRIPTION = (
    "Runs Python code and returns what it prints, the value of a last expression, and errors. Variables, imports and "
    "files stay between calls. The working folder is /mnt/data. There is no network{shell}. {packages} can be "
    "imported; matplotlib's figures are shown to the user by themselves. To give the user a file, write it into "
    "/mnt/data and link to it as [name](sandbox:/mnt/data/name).{files}"
)
_NO_SHELL = (
    "Unsupported value: containers have no shell in this service. Run the commands yourself, with the environment "
    "'local', or ask the operator to set 'code_interpreter.shell'."
)
_NO_CODE = 'The code interpreter was called without code. Call it with {"code": "..."}.'


class CodeInterpreter:
    """The code interpreter of this deployment, a `BuiltIn`."""

    type = TYPE

    def __init__(self, containers: Containers) -> None:
        self.containers = containers

    async def open(self, tool: CodeInterpreterTool | ShellTool, context: ToolContext) -> ContainerInUse:
        """Return the tool for one response.

        Raises:
            NotFound: there is no such file.
            BadRequest: a file or the requested memory is too large, or containers have no shell.
            Unavailable: no containers can be created.
        """
        kind: type[ContainerInUse]
        wanted: NewContainerOptions | str
        if isinstance(tool, CodeInterpreterTool):
            kind, wanted = CodeInUse, tool.container
        else:
            kind, wanted = ShellInUse, _wanted_by(tool)
        at = f"{context.param}.{kind.field}"
        if kind is ShellInUse and not self.containers.config.shell:
            raise BadRequest(_NO_SHELL, param=f"{at}.type", code="unsupported_value")
        if isinstance(wanted, str):
            return kind(self.containers, context, None, wanted, [])
        self.containers.check_memory(wanted.memory_limit, f"{at}.memory_limit")
        await self.containers.check_able()
        files = await self.containers.files.find_uploads(context.principal, wanted.file_ids or (), f"{at}.file_ids")
        used = [found for item in context.calls(*CONTAINER_CALLS) if (found := container_of(item)) is not None]
        return kind(self.containers, context, wanted, used[-1] if used else None, files)


def _wanted_by(tool: ShellTool) -> ShellContainer | str:
    """Return the container of a hosted shell: its options or its id."""
    if isinstance(tool.environment, ContainerReference):
        return tool.environment.container_id
    return tool.environment if isinstance(tool.environment, ShellContainer) else ShellContainer(type="container_auto")


def create_built_in(config: CodeInterpreterConfig, resources: ToolResources) -> CodeInterpreter:
    """Return the code interpreter of a configuration."""
    hosts = RemoteHosts(resources.choosers[TYPE])
    resources.closing.callback(hosts.close)
    store = ContainerStore(resources.database, resources.files.vault, resources.files.clock)
    return CodeInterpreter(Containers(store, hosts, resources.files, config))


class CodeInWriting(FieldInWriting):
    """A call of the code interpreter while the model writes it."""

    def __init__(self, item: Item) -> None:
        super().__init__(item, f"{EVENT}_code", "code", f"{EVENT}.in_progress")
        self._code = TextMember("code")

    def take(self, text: str) -> list[ToolEvent]:
        """Return the event for more of the code, if there is more."""
        return super().take(self._code.take(text))


class CodeInUse(ContainerInUse, WritingTool):
    """The code interpreter within one response."""

    _image_bytes = 0

    def functions(self) -> list[Item]:
        """Return the function that the model may call."""
        packages = ", ".join(self._containers.config.packages) or "Only the standard library"
        names = ", ".join(file.filename for file in self._files)
        description = _DESCRIPTION.format(
            packages=packages,
            shell="" if self._containers.config.shell else " and no shell",
            files=f" The user has put there: {names}." if names else "",
        )
        code = {"type": "string", "description": "The Python code to run."}
        parameters = object_schema({"code": code})
        function = {"name": TYPE, "description": description, "parameters": parameters}
        return [{"type": "function", "function": function}]

    def begin(self, name: str, arguments: str) -> Item:
        """Return a new item for a call."""
        head = {"id": new_id("ci"), "type": "code_interpreter_call", "status": "in_progress"}
        return {**head, "container_id": self._next_id, "code": "", "outputs": None}

    def write(self, item: Item) -> CodeInWriting:
        """Return the call as it is shown while the model writes it."""
        return CodeInWriting(item)

    async def run(self, item: Item, name: str, arguments: str, send: SendEvent) -> ToolAnswer:
        """Run the code of a call; cancelling this interrupts the code."""
        code = _code_of(arguments)
        if code is None:
            return ToolAnswer({**item, "status": "failed"}, _NO_CODE)
        send(f"{EVENT}.interpreting")
        try:
            result, note, container_id = await self._run(code, item["container_id"])
        except (ContainerError, ApiError) as error:
            return ToolAnswer({**item, "status": "failed"}, error.message)
        send(f"{EVENT}.completed")
        finished = {**item, "status": _STATUSES[result.status], "container_id": container_id}
        if OUTPUTS in self._context.include:
            finished["outputs"] = self._outputs(result)
        return ToolAnswer(finished, _output_of(result, note), cites=self._written.to_json())

    def _outputs(self, result: CodeRun) -> list[Item]:
        """Return the outputs of a call for the client; figures beyond a total size are files only."""
        outputs: list[Item] = [{"type": "logs", "logs": result.logs}] if result.logs else []
        for _, image in result.images:
            if self._image_bytes + len(image) > _MAX_SHOWN_IMAGE_BYTES:
                break
            self._image_bytes += len(image)
            outputs.append({"type": "image", "url": "data:image/png;base64," + base64.b64encode(image).decode()})
        return outputs


def _code_of(arguments: str) -> str | None:
    """Return the code in a call's arguments, as it was shown; None if there is none."""
    if not is_json_object(arguments):
        return None
    code = TextMember("code")
    code.take(arguments)
    return code.text


def _output_of(result: CodeRun, note: str) -> str:
    lines = [note, result.logs.rstrip("\n")]
    if result.reason is not None:
        lines.append(f"[The code was stopped: {result.reason}]")
    if result.status == "died":
        lines.append("[The container has ended; its variables and files are gone.]")
    if result.files:
        lines.append(f"[Files written: {', '.join(path_in(file) for file in result.files)}]")
    return "\n".join(line for line in lines if line) or "[The code printed nothing.]"
