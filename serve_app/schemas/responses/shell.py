"""Shells as tools of a response. The client runs the commands, or a container of the service does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from serve_app.schemas.base import WireModel
from serve_app.schemas.json_schema import object_schema
from serve_app.schemas.responses.code_interpreter import ContainerId, NewContainerOptions
from serve_app.schemas.responses.fixed_tool import MAYBE_INTEGER, STRING, FixedTool, read_as
from serve_app.schemas.responses.functions import ClientFunction
from serve_app.schemas.tools import JsonSchema

MAX_SKILLS = 64
CONTAINER_CALLS = ("code_interpreter_call", "shell_call")


class LocalSkill(WireModel):
    """Instructions on the client's machine that the model may read and follow.

    Args:
        name: the name of the skill.
        description: what the skill is for.
        path: the folder that holds it.
    """

    name: str
    description: str
    path: str


class LocalEnvironment(WireModel):
    """The client's machine.

    Args:
        skills: skills that the client has there.
    """

    type: Literal["local"]
    skills: Annotated[list[LocalSkill], Field(fail_fast=True, max_length=MAX_SKILLS)] | None = None


class ShellContainer(NewContainerOptions):
    """A container that the service finds or creates; `file_ids` are copied into it."""

    type: Literal["container_auto"]


class ContainerReference(WireModel):
    """A container that exists.

    Args:
        container_id: the container's id.
    """

    type: Literal["container_reference"]
    container_id: ContainerId


class ShellAction(WireModel):
    """The commands of a call of a shell.

    Args:
        commands: the commands, in their order.
        timeout_ms: how long they may take, in milliseconds.
        max_output_length: how many characters of their output are wanted.
    """

    commands: Annotated[list[str], Field(min_length=1)]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class ShellTool(FixedTool):
    """Runs shell commands: on the client's machine, or in a container of the service.

    Args:
        environment: where commands run. Left out, the client runs them.
        allowed_callers: accepted for compatibility; has no effect.
    """

    called = "shell"
    call_type = "shell_call"
    id_prefix = "sh"
    type: Literal["shell"]
    environment: (
        Annotated[LocalEnvironment | ShellContainer | ContainerReference, Field(discriminator="type")] | None
    ) = None
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None

    @property
    def is_hosted(self) -> bool:
        """Whether the service runs the commands."""
        return isinstance(self.environment, ShellContainer | ContainerReference)

    def functions(self, at: str) -> Iterator[ClientFunction]:
        """Yield the function, unless the service runs it."""
        return iter(()) if self.is_hosted else super().functions(at)

    def explain(self) -> str:
        """Return the function's description, with the client's skills."""
        about = "Runs shell commands on the user's machine, one after the other, and returns what they print."
        skills = (self.environment.skills if isinstance(self.environment, LocalEnvironment) else None) or ()
        listed = [f"- {one.name} ({one.path}): {one.description}" for one in skills]
        return "\n".join([about, *(["Skills, which files in these folders explain:"] if listed else []), *listed])

    def arguments(self) -> JsonSchema:
        """Return the JSON schema of the commands."""
        return shell_schema()

    @classmethod
    def read_call(cls, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the commands as the item's action."""
        action = read_action(arguments)
        return action and {"action": action, "environment": {"type": "local"}}

    @classmethod
    def show_call(cls, item: Mapping[str, Any]) -> Any:
        """Return the item's action."""
        return item.get("action")

    @classmethod
    def call_events(cls, item: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """Return the events that show each command."""
        return command_events(item["action"]["commands"])


def shell_schema() -> JsonSchema:
    """Return the JSON schema of a call of a shell."""
    commands = {"type": "array", "items": STRING, "minItems": 1}
    return object_schema({"commands": commands, "timeout_ms": MAYBE_INTEGER, "max_output_length": MAYBE_INTEGER})


def read_action(arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the commands and limits of a call of a shell; None if the arguments do not fit."""
    return read_as(ShellAction, arguments)


def command_events(commands: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds and the fields of the events that show commands."""
    events: list[tuple[str, dict[str, Any]]] = []
    for index, command in enumerate(commands):
        place = {"command_index": index}
        events += [
            ("response.shell_call_command.added", {**place, "command": ""}),
            ("response.shell_call_command.delta", {**place, "delta": command}),
            ("response.shell_call_command.done", {**place, "command": command}),
        ]
    return events


class LocalShellAction(WireModel):
    """The command of a call of the older shell.

    Args:
        command: the program and its arguments.
        timeout_ms: how long it may take, in milliseconds.
        working_directory: the folder to run it in.
    """

    command: Annotated[list[str], Field(min_length=1)]
    timeout_ms: int | None = None
    working_directory: str | None = None


class LocalShellTool(FixedTool):
    """Runs one command on the client's machine; `shell` has replaced it."""

    called = "local_shell"
    call_type = "local_shell_call"
    id_prefix = "lsh"
    type: Literal["local_shell"]

    def explain(self) -> str:
        """Return the function's description."""
        return (
            "Runs a command on the user's machine and returns what it prints. `command` is the program and its "
            'arguments, such as ["bash", "-c", "ls | wc -l"].'
        )

    def arguments(self) -> JsonSchema:
        """Return the JSON schema of the command."""
        command = {"type": "array", "items": STRING, "minItems": 1}
        folder = {"type": ["string", "null"]}
        return object_schema({"command": command, "timeout_ms": MAYBE_INTEGER, "working_directory": folder})

    @classmethod
    def read_call(cls, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the command as the item's action."""
        action = read_as(LocalShellAction, arguments)
        return action and {"action": {"type": "exec", "env": {}, **action}}

    @classmethod
    def show_call(cls, item: Mapping[str, Any]) -> Any:
        """Return the command, and what else the action has."""
        action = item.get("action")
        if not isinstance(action, dict):
            return action
        return {name: value for name, value in action.items() if name != "type" and (name != "env" or value)}


def container_of(item: Mapping[str, Any]) -> str | None:
    """Return the id of the container that a call ran in, None if it did not run in one."""
    holder = item.get("environment") if item["type"] == ShellTool.call_type else item
    container_id = holder.get("container_id") if isinstance(holder, Mapping) else None
    return container_id if isinstance(container_id, str) and item["type"] in CONTAINER_CALLS else None


def named_container(tool: object) -> str | None:
    """Return the id of the container that a tool names, None if it names none."""
    if isinstance(tool, ShellTool):
        return tool.environment.container_id if isinstance(tool.environment, ContainerReference) else None
    named = getattr(tool, "container", None)
    return named if isinstance(named, str) else None
