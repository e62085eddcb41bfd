"""The code interpreter as a tool of a response: the model writes Python, a container runs it.

A failed call does not fail the response: the model reads why. Containers that were created for a key that stores
nothing, or for a line of a batch, end with the response.
"""

import asyncio
import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from deployments.operations import Operation
from deployments.state.containers import ContainerStore, StoredContainer
from deployments.state.files.store import StoredFile
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.messages import CodeRun, ContainerError, ContainerGone
from deployments.tools.config import CodeInterpreterConfig
from serve_app.errors.api import ApiError, NotFound
from serve_app.errors.capacity import QuotaExceeded, Unavailable
from serve_app.operations.containers.citations import WrittenFiles
from serve_app.operations.containers.files import expired, path_in
from serve_app.operations.containers.service import Containers, NewContainer, new_container_id
from serve_app.operations.containers.writing import EVENT, CodeInWriting, TextMember
from serve_app.operations.responses.events.writer import Item, new_id
from serve_app.operations.responses.tools.contract import (
    CheckedTool,
    CitingTool,
    SendEvent,
    ToolAnswer,
    ToolContext,
    ToolResources,
    WritingTool,
)
from serve_app.schemas.responses.code_interpreter import AutoContainer, CodeInterpreterTool
from serve_app.validation.body import is_json_object

TYPE: Final = Operation.CODE_INTERPRETER
OUTPUTS: Final = "code_interpreter_call.outputs"
_ROOM_EVERY_S = 0.5
_MAX_SHOWN_IMAGE_BYTES = 8 * 1024 * 1024
_STATUSES = {"ok": "completed", "error": "completed", "interrupted": "incomplete", "died": "failed"}
_DESCRIPTION = (
    "Runs Python code and returns what it prints, the value of a last expression, and errors. Variables, imports and "
    "files stay between calls. The working folder is /mnt/data. There is no network and no shell. {packages} can be "
    "imported; matplotlib's figures are shown to the user by themselves. To give the user a file, write it into "
    "/mnt/data and link to it as [name](sandbox:/mnt/data/name).{files}"
)
_NO_CODE = 'The code interpreter was called without code. Call it with {"code": "..."}.'
_ANEW = "[The container had expired, and its variables and files are gone. This ran in a new one.]"
_GONE = "The container has expired, and everything in it is gone."


class CodeInterpreter:
    """The code interpreter of this deployment, a `BuiltIn`."""

    type = TYPE

    def __init__(self, containers: Containers) -> None:
        self.containers = containers

    async def open(self, tool: CodeInterpreterTool, context: ToolContext) -> "CodeInUse":
        """Return the tool for one response.

        Raises:
            NotFound: there is no such file.
            BadRequest: a file or the requested memory is too large.
            Unavailable: no containers can be created.
        """
        param = f"{context.param}.container"
        if not isinstance(tool.container, AutoContainer):
            return CodeInUse(self.containers, context, None, tool.container, [])
        auto = tool.container
        self.containers.check_memory(auto.memory_limit, f"{param}.memory_limit")
        await self.containers.check_able()
        files = await self.containers.files.find_uploads(context.principal, auto.file_ids or (), f"{param}.file_ids")
        used = [item["container_id"] for item in context.calls("code_interpreter_call")]
        return CodeInUse(self.containers, context, auto, used[-1] if used else None, files)


def create_built_in(config: CodeInterpreterConfig, resources: ToolResources) -> CodeInterpreter:
    """Return the code interpreter of a configuration."""
    hosts = RemoteHosts(resources.choosers[TYPE])
    resources.closing.callback(hosts.close)
    store = ContainerStore(resources.database, resources.files.vault, resources.files.clock)
    return CodeInterpreter(Containers(store, hosts, resources.files, config))


class CodeInUse(WritingTool, CheckedTool, CitingTool):
    """The code interpreter within one response.

    Without `auto`, `container_id` is the container that the request names. With it, it is the one that the conversation
    used last, if any; if that has ended, the first call creates another.
    """

    def __init__(
        self,
        containers: Containers,
        context: ToolContext,
        auto: AutoContainer | None,
        container_id: str | None,
        files: Sequence[StoredFile],
    ) -> None:
        self._containers = containers
        self._context = context
        self._auto = auto
        self._container_id = container_id
        self._container: StoredContainer | None = None
        self._next_id = new_container_id()
        self._files = files
        self._has_files = False
        self._image_bytes_left = _MAX_SHOWN_IMAGE_BYTES
        self._created: list[str] = []
        self._written = WrittenFiles()

    async def check(self) -> None:
        """Find the container to continue with. Raises NotFound if the request names one that is gone."""
        if self._container_id is None:
            return
        find_container = self._find_named if self._auto is None else self._find_last
        self._container = await find_container(self._context.principal.account, self._container_id)
        if self._container is not None:
            self._next_id = self._container.container_id

    async def _find_named(self, account: str, container_id: str) -> StoredContainer:
        param = f"{self._context.param}.container"
        try:
            container = await self._containers.look(account, container_id)
        except NotFound as missing:
            raise NotFound(missing.message, param=param) from None
        if not container.is_running:
            raise expired(container_id, param)
        return container

    async def _find_last(self, account: str, container_id: str) -> StoredContainer | None:
        with suppress(NotFound):
            container = await self._containers.find(account, container_id)
            return container if container.is_running else None
        return None

    def functions(self) -> list[Item]:
        """Return the function that the model may call."""
        packages = ", ".join(self._containers.config.packages) or "Only the standard library"
        names = ", ".join(file.filename for file in self._files)
        description = _DESCRIPTION.format(
            packages=packages, files=f" The user has put there: {names}." if names else ""
        )
        code = {"type": "string", "description": "The Python code to run."}
        parameters = {
            "type": "object",
            "properties": {"code": code},
            "required": ["code"],
            "additionalProperties": False,
        }
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
        if self._container is None and self._auto is not None:
            self._next_id = item["container_id"]  # The client has seen it.
        send(f"{EVENT}.interpreting")
        try:
            result, note = await self._run(code)
        except ContainerError as error:
            return ToolAnswer({**item, "status": "failed"}, error.message)
        except ApiError as error:
            return ToolAnswer({**item, "status": "failed"}, error.message)
        send(f"{EVENT}.completed")
        container_id = self._next_id
        self._written.add(container_id, result.files)
        if result.status == "died":
            self._forget()
        finished = {**item, "status": _STATUSES[result.status], "container_id": container_id}
        if OUTPUTS in self._context.include:
            finished["outputs"] = self._outputs(result)
        return ToolAnswer(finished, _output_of(result, note), cites=self._written.to_json())

    def recall(self, cites: Any) -> None:
        """Restore the files that were written, and those not cited yet."""
        if cites is not None:
            self._written.recall(cites)

    async def _run(self, code: str) -> tuple[CodeRun, str]:
        """Run code in the container, or in a new one if that has expired; return a note about that too."""
        note = ""
        if self._container is not None:
            try:
                if self._files and not self._has_files:  # This request may name others than the one before.
                    await self._containers.files.add_missing(self._container, self._files)
                    self._has_files = True
                return await self._containers.run(self._container, code), note
            except ContainerGone:
                self._forget()
                note = _ANEW
        if self._auto is None:
            raise ContainerGone(_GONE)
        new = NewContainer(memory_limit=self._auto.memory_limit, file_ids=[file.file_id for file in self._files])
        self._container = await self._create(new)
        self._has_files = True
        self._created.append(self._container.container_id)
        return await self._containers.run(self._container, code), note

    async def _create(self, new: NewContainer) -> StoredContainer:
        """Create a container; a line of a batch waits until there is room."""
        while True:
            try:
                return await self._containers.create(self._context.principal, new, self._next_id)
            except (QuotaExceeded, Unavailable):
                if not self._context.is_batch:
                    raise
            await asyncio.sleep(_ROOM_EVERY_S)

    def _outputs(self, result: CodeRun) -> list[Item]:
        """Return the outputs of a call for the client; figures beyond a total size are files only."""
        outputs: list[Item] = [{"type": "logs", "logs": result.logs}] if result.logs else []
        for _, image in result.images:
            if len(image) > self._image_bytes_left:
                break
            self._image_bytes_left -= len(image)
            outputs.append({"type": "image", "url": "data:image/png;base64," + base64.b64encode(image).decode()})
        return outputs

    def _forget(self) -> None:
        """Forget the container: the next call creates another, where it may."""
        self._container, self._has_files = None, False
        self._written.clear()
        if self._auto is not None:
            self._next_id = new_container_id()

    def cite(self, text: str) -> list[Item]:
        """Return citations of the files that code wrote."""
        # Nothing can be fetched from a container that ends with the response.
        return self._written.cite(text) if self._outlives else []

    @property
    def _outlives(self) -> bool:
        """Whether a container that this response creates stays after it."""
        return self._context.principal.retention != "strict" and not self._context.is_batch

    async def close(self) -> None:
        """End the containers that must not stay."""
        if not self._outlives:
            for container_id in self._created:
                with suppress(NotFound):
                    await self._containers.delete(self._context.principal.account, container_id)


def _code_of(arguments: str) -> str | None:
    """Return the code in a call's arguments, as it was shown; None if there is none."""
    if not is_json_object(arguments):
        return None
    code = TextMember("code")
    code.take(arguments)
    return code.text


def _output_of(result: CodeRun, note: str) -> str:
    """Return the output of a call for the model."""
    lines = [note, result.logs.rstrip("\n")]
    if result.reason is not None:
        lines.append(f"[The code was stopped: {result.reason}]")
    if result.status == "died":
        lines.append("[The container has ended; its variables and files are gone.]")
    if result.files:
        lines.append(f"[Files written: {', '.join(path_in(file) for file in result.files)}]")
    return "\n".join(line for line in lines if line) or "[The code printed nothing.]"
