"""The code interpreter as a tool of a response, and its calls as items."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BeforeValidator, Field, Tag

from deployments.operations import Operation
from serve_app.schemas.base import Refused, WireModel, refusal
from serve_app.schemas.responses.built_in_tool import BuiltInItem, BuiltInTool, ItemId, Shown

MAX_CONTAINER_FILES = 50
NOT_KEPT = "[What the code printed was not kept.]"
_CUT_OFF = "[The code was cut off or interrupted.]"
ContainerId = Annotated[str, Field(min_length=1, max_length=128)]


class NoNetwork(WireModel):
    """No network, the only policy that is supported."""

    type: Literal["disabled"]


def _refuse_network(policy: Any) -> Any:
    if isinstance(policy, dict) and policy.get("type") == "allowlist":
        raise refusal(
            "unsupported_value",
            "Unsupported value: '{param}' does not support 'allowlist': containers have no network. Supported values "
            "are: 'disabled'.",
            ".type",
        )
    return policy


def _refuse_skills(skills: Any) -> Any:
    if skills:
        raise refusal(
            "unsupported_parameter",
            "Unsupported parameter: '{param}' is not supported: this service keeps no skills. Upload their files, name "
            "them in 'file_ids', and say in 'instructions' what they are for.",
        )
    return skills


NetworkPolicy = Annotated[NoNetwork, BeforeValidator(_refuse_network)]
Skills = Annotated[Refused, AfterValidator(_refuse_skills)]
ContainerMemory = Literal["1g", "4g", "16g", "64g"]
FileIds = Annotated[list[Annotated[str, Field(min_length=1, max_length=128)]], Field(max_length=MAX_CONTAINER_FILES)]


class NewContainerOptions(WireModel):
    """What a container has that the service creates for a tool.

    Args:
        file_ids: uploaded files to copy into the container.
        memory_limit: the memory of the container, at most what the operator allows.
        network_policy: only `disabled` is supported: containers have no network.
    """

    file_ids: FileIds | None = None
    memory_limit: ContainerMemory | None = None
    network_policy: NetworkPolicy | None = None
    skills: Skills = None


class AutoContainer(NewContainerOptions):
    """A container that the service finds or creates; `file_ids` are copied into it."""

    type: Literal["auto"]


class CodeInterpreterTool(BuiltInTool):
    """Runs Python code of the model in a container: a named or an automatic one.

    Args:
        container: the id of a container, or an object that lets the service choose or create one.
        allowed_callers: accepted for compatibility; has no effect.
    """

    tool = Operation.CODE_INTERPRETER
    type: Literal["code_interpreter"]
    container: Annotated[ContainerId, Tag("?string")] | Annotated[AutoContainer, Tag("?object")]
    allowed_callers: list[Literal["direct", "programmatic"]] | None = None


class LogsOutput(WireModel):
    """The output that code printed.

    Args:
        logs: the printed text.
    """

    type: Literal["logs"]
    logs: str


class ImageOutput(WireModel):
    """A figure that code created, in a data URL.

    Args:
        url: the image as a data URL.
    """

    type: Literal["image"]
    url: str


class CodeInterpreterCallItem(BuiltInItem):
    """A call of the code interpreter.

    Args:
        container_id: the container that ran the code.
        code: the code that the model wrote.
        outputs: what the code printed and drew.
        status: the state of the call.
    """

    id_prefix = "ci"
    written = ("response.code_interpreter_call_code", "code")
    type: Literal["code_interpreter_call"]
    id: ItemId
    container_id: Annotated[str, Field(max_length=128)]
    code: str | None = None
    outputs: (
        Annotated[
            list[Annotated[LogsOutput | ImageOutput, Field(discriminator="type")]], Field(fail_fast=True, max_length=64)
        ]
        | None
    ) = None
    status: Literal["in_progress", "completed", "incomplete", "interpreting", "failed"] | None = None

    @classmethod
    def show(cls, item: Mapping[str, Any]) -> Shown:
        """Return the code and what it printed."""
        outputs = item.get("outputs") or ()
        logs = "".join(output["logs"] for output in outputs if output["type"] == "logs")
        arguments = orjson.dumps({"code": item.get("code") or ""}).decode()
        otherwise = _CUT_OFF if item.get("status") == "incomplete" else NOT_KEPT
        return "code_interpreter", arguments, logs or otherwise
