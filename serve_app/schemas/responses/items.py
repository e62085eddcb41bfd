"""The items of a response's input: messages, calls and their outputs, reasoning, references, compactions.

Every item of an answer can be sent back unchanged, or with the fields that client libraries add to it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, Union

from pydantic import BeforeValidator, ConfigDict, Field, Tag, model_validator

from serve_app.schemas.base import NAME_PATTERN, WireModel, invalid, refusal
from serve_app.schemas.responses.built_in_tool import ItemId
from serve_app.schemas.responses.client_calls import (
    CallId,
    CallOutputItem,
    CustomToolCallItem,
    FunctionCallItem,
    Status,
)
from serve_app.schemas.responses.parts import (
    InputFilePart,
    InputImagePart,
    InputTextPart,
    OutputRefusalPart,
    OutputTextPart,
    Part,
)
from serve_app.schemas.responses.tools import BUILT_IN_ITEMS, LaterTools
from serve_app.schemas.responses.updates import AdditionalToolsItem, ConfigurationUpdateItem

_INPUT_PARTS = "'input_text', 'input_image', and 'input_file'"
_OUTPUT_PARTS = "'output_text' and 'refusal'"
EXTERNAL_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "apply_patch_call": "apc",
        "apply_patch_call_output": "apco",
        "computer_call": "cu",
        "computer_call_output": "cuo",
        "image_generation_call": "ig",
        "local_shell_call": "lsh",
        "local_shell_call_output": "lsho",
        "program": "prog",
        "program_output": "progo",
        "shell_call": "sh",
        "shell_call_output": "sho",
        "tool_search_call": "tsc",
        "tool_search_output": "tso",
    }
)
"""The prefixes of the ids of items whose tools do not run here, by type. They are history that the model reads.

The service may also run shells and searches: their items are the same.
"""
TOOL_SEARCH_OUTPUT = "tool_search_output"
COMPACTION_TRIGGER = "compaction_trigger"
AGENT_MESSAGE = "agent_message"


class MessageItem(WireModel):
    """A message of the user, the application or the model.

    Args:
        type: may be left out.
        role: the author: `user`, `assistant`, or `system` and `developer` for instructions.
        content: a text, or parts with text, images and files.
        phase: accepted from answers; has no effect.
    """

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: (
        Annotated[str, Tag("?string")]
        | Annotated[list[Part], Field(fail_fast=True, min_length=1), Tag("?array of objects")]
    )
    id: ItemId | None = None
    status: Status | None = None
    phase: Literal["commentary", "final_answer"] | None = None

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if isinstance(self.content, str):
            return self
        is_assistant = self.role == "assistant"
        for index, part in enumerate(self.content):
            if isinstance(part, OutputTextPart | OutputRefusalPart) != is_assistant:
                supported = _OUTPUT_PARTS if is_assistant else _INPUT_PARTS
                raise invalid(
                    f"Invalid value: '{part.type}'. Supported values are: {supported}.", f".content[{index}].type"
                )
            if self.role != "user" and isinstance(part, InputImagePart | InputFilePart):
                raise invalid(
                    f"Invalid value: '{part.type}'. Supported values are: 'input_text'.", f".content[{index}].type"
                )
        return self


class EncryptedPart(WireModel):
    """Text that one agent wrote for another.

    Args:
        encrypted_content: the text as the model wrote it; this service does not encrypt it.
    """

    type: Literal["encrypted_content"]
    encrypted_content: str


class AgentMessageItem(WireModel):
    """What one agent of a client says to another; the model reads it as a message of the user.

    Args:
        author: the agent that says it.
        recipient: the agent that reads it.
        content: the text, in parts.
    """

    type: Literal["agent_message"]
    author: str
    recipient: str
    content: Annotated[
        list[Annotated[InputTextPart | EncryptedPart, Field(discriminator="type")]], Field(fail_fast=True, min_length=1)
    ]
    id: ItemId | None = None


class SummaryPart(WireModel):
    """A piece of a summary of reasoning.

    Args:
        text: the text.
    """

    type: Literal["summary_text"]
    text: str


class ReasoningPart(WireModel):
    """A piece of reasoning.

    Args:
        text: the text.
    """

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(WireModel):
    """The model's reasoning; `encrypted_content` is the same in encrypted form.

    Args:
        summary: the summary of the reasoning, in parts.
        content: the reasoning itself, in parts.
        encrypted_content: the reasoning, encrypted by this service.
    """

    type: Literal["reasoning"]
    id: ItemId | None = None
    summary: Annotated[list[SummaryPart], Field(fail_fast=True)]
    content: Annotated[list[ReasoningPart], Field(fail_fast=True)] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


class CompactionItem(WireModel):
    """A conversation, compacted by this service.

    Args:
        encrypted_content: the summary, encrypted by this service.
        created_by: accepted from answers; has no effect.
    """

    type: Literal["compaction"]
    encrypted_content: str
    id: ItemId | None = None
    created_by: str | None = None


if TYPE_CHECKING:
    ExternalType = str
else:
    ExternalType = Literal[tuple(kind for kind in EXTERNAL_ITEMS if kind != TOOL_SEARCH_OUTPUT)]


class ExternalItem(WireModel):
    """A call of a tool that does not run here, or its output, with the fields that the tool gave it.

    Args:
        type: the kind of call or output.
        call_id: the id of the call, which its output refers to.
        status: the state of the call.
        name: the tool's name.
        namespace: the group that the tool belongs to.
    """

    model_config = ConfigDict(extra="allow")

    type: ExternalType
    id: ItemId | None = None
    call_id: CallId | None = None
    status: str | None = None
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)] | None = None
    namespace: str | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.call_id is None and self.id is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".call_id")
        return self


class ToolSearchOutputItem(ExternalItem):
    """The tools that a search has found. The model may call them from here on.

    Args:
        execution: whether the client or the service has searched.
        tools: the tools with their whole definitions; their `defer_loading` has no effect here.
    """

    type: Literal["tool_search_output"]
    execution: Literal["client", "server"] | None = None
    tools: LaterTools


class CompactionTrigger(WireModel):
    """Asks for a response that is only a compaction of the conversation before it."""

    type: Literal["compaction_trigger"]


class ItemReference(WireModel):
    """A stored item, by its id."""

    type: Literal["item_reference"]
    id: ItemId


def _read_type(item: Any) -> Any:
    """Return an item with the type of a message or a reference that leaves it out."""
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind is None and "role" in item:
        return {**item, "type": "message"}
    if kind is None and "id" in item and item.keys() <= {"type", "id"}:
        return {**item, "type": "item_reference"}
    return item


if TYPE_CHECKING:
    InputItem = WireModel
else:
    _Item = Union[
        (
            *(MessageItem, AgentMessageItem, FunctionCallItem, CustomToolCallItem, CallOutputItem),
            *BUILT_IN_ITEMS.values(),
            *(ReasoningItem, CompactionItem, CompactionTrigger, ItemReference, ExternalItem),
            *(ToolSearchOutputItem, AdditionalToolsItem, ConfigurationUpdateItem),
        )
    ]
    InputItem = Annotated[Annotated[_Item, Field(discriminator="type")], BeforeValidator(_read_type)]

InputItems = Annotated[list[InputItem], Field(fail_fast=True)]
Input = Annotated[str, Tag("?string")] | Annotated[InputItems, Tag("?array of objects")]
