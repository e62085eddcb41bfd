"""The items of a response's input: messages, calls and their outputs, reasoning, references, compactions.

Every item of an answer can be sent back unchanged, or with the fields that client libraries add to it.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, LiteralString, Self, Union

from pydantic import BeforeValidator, ConfigDict, Field, Tag, model_validator

from serve_app.schemas.base import NAME_PATTERN, WireModel, refusal
from serve_app.schemas.messages import PromptCacheBreakpoint
from serve_app.schemas.responses.built_in_tool import ItemId
from serve_app.schemas.responses.tools import BUILT_IN_ITEMS

FileId = Annotated[str, Field(min_length=1, max_length=128)]
CallId = Annotated[str, Field(min_length=1, max_length=256)]
Status = Literal["in_progress", "completed", "incomplete"]

_IMAGE_DATA = re.compile(r"data:image/(?:png|jpe?g|webp|gif);base64,")
_TEXT_DATA = re.compile(
    r"data:(?:text/[\w.+-]+|application/(?:(?:[\w.-]+\+)?(?:json|xml|yaml)|(?:x-)?(?:javascript|ndjson|python|sh|sql|toml|"
    r"typescript|yaml)|jsonl|octet-stream))(?:;[\w-]+=[\w.-]+)*;base64,",
    re.ASCII | re.IGNORECASE,
)
READABLE_FILES: LiteralString = (
    "Unsupported value: '{param}' is not a file of text. Files of text in UTF-8 are read, such as .txt, .md, .csv, "
    ".json, .html or source code; send an image as 'input_image', and a PDF or another document as its text."
)
_INPUT_PARTS = "'input_text', 'input_image', and 'input_file'"
_OUTPUT_PARTS = "'output_text' and 'refusal'"
UNSUPPORTED_ITEMS = frozenset({"additional_tools"})
EXTERNAL_ITEMS: Mapping[str, str] = MappingProxyType(
    {
        "apply_patch_call": "apc",
        "apply_patch_call_output": "apco",
        "computer_call": "cu",
        "computer_call_output": "cuo",
        "custom_tool_call": "ctc",
        "custom_tool_call_output": "ctco",
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
"""The prefixes of the ids of items whose tools do not run here, by type. They are history that the model reads."""


COMPACTION_TRIGGER = "compaction_trigger"


def _check_one(part: WireModel, *names: LiteralString) -> None:
    given = [name for name in names if getattr(part, name) is not None]
    if len(given) > 1:
        raise refusal(
            "mutually_exclusive_parameters",
            f"Mutually exclusive parameters: '{{param}}' and '{given[0]}'. Send only one of them.",
            f".{given[1]}",
        )


class InputTextPart(WireModel):
    """Text that the model reads."""

    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class InputImagePart(WireModel):
    """An image: carried in its URL, or stored under an id."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: FileId | None = None
    detail: Literal["low", "high", "auto", "original"] | None = "auto"
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_one(self, "file_id", "image_url")
        if self.file_id is not None:
            return self
        if self.image_url is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".image_url")
        if _IMAGE_DATA.match(self.image_url) is None:
            raise refusal(
                "invalid_image_url",
                "Invalid '{param}': expected a data URL that holds a base64-encoded image "
                "(data:image/png;base64,...). The service does not download images: send the image itself, or upload "
                "it to /v1/files and send its 'file_id'.",
                ".image_url",
            )
        return self


class InputFilePart(WireModel):
    """A file of text: carried as a data URL, or stored under an id."""

    type: Literal["input_file"]
    file_data: str | None = None
    filename: Annotated[str, Field(max_length=512)] | None = None
    file_id: FileId | None = None
    file_url: str | None = None
    detail: Literal["low", "high", "auto"] | None = None
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_one(self, "file_id", "file_data", "file_url")
        if self.file_url is not None:
            raise refusal(
                "unsupported_value",
                "Unsupported value: '{param}'. The service does not download files: send the content itself as "
                "'file_data', or upload the file to /v1/files and send its 'file_id'.",
                ".file_url",
            )
        if self.file_data is None and self.file_id is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".file_data")
        if self.file_data is not None and not self.file_data.startswith("data:"):
            raise refusal(
                "invalid_value",
                "Invalid '{param}': expected a data URL that holds a base64-encoded file (data:text/plain;base64,...).",
                ".file_data",
            )
        if self.file_data is not None and _TEXT_DATA.match(self.file_data) is None:
            raise refusal("unsupported_value", READABLE_FILES, ".file_data")
        return self


class OutputTextPart(WireModel):
    """Text that the model wrote."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None
    parsed: Any = None


class OutputRefusalPart(WireModel):
    """The text with which the model declines."""

    type: Literal["refusal"]
    refusal: str


Part = Annotated[
    InputTextPart | InputImagePart | InputFilePart | OutputTextPart | OutputRefusalPart, Field(discriminator="type")
]


class MessageItem(WireModel):
    """A message of the user, the application or the model."""

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
                raise refusal(
                    "invalid_value",
                    f"Invalid value: '{part.type}'. Supported values are: {supported}.",
                    f".content[{index}].type",
                )
            if self.role != "user" and isinstance(part, InputImagePart | InputFilePart):
                raise refusal(
                    "invalid_value",
                    f"Invalid value: '{part.type}'. Supported values are: 'input_text'.",
                    f".content[{index}].type",
                )
        return self


class FunctionCallItem(WireModel):
    """A call that the model made; client libraries add the last fields."""

    type: Literal["function_call"]
    call_id: CallId
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=NAME_PATTERN)]
    arguments: str
    id: ItemId | None = None
    status: Status | None = None
    namespace: str | None = None
    caller: Any = None
    parsed_arguments: Any = None
    created_by: str | None = None


class FunctionCallOutputItem(WireModel):
    """The output of a call."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: (
        Annotated[str, Tag("?string")]
        | Annotated[
            list[Annotated[InputTextPart | InputImagePart | InputFilePart, Field(discriminator="type")]],
            Field(fail_fast=True),
            Tag("?array of objects"),
        ]
    )
    id: ItemId | None = None
    status: Status | None = None
    name: str | None = None
    namespace: str | None = None
    caller: Any = None
    created_by: str | None = None


class SummaryPart(WireModel):
    """A piece of a summary of reasoning."""

    type: Literal["summary_text"]
    text: str


class ReasoningPart(WireModel):
    """A piece of reasoning."""

    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(WireModel):
    """The model's reasoning; `encrypted_content` is its sealed form."""

    type: Literal["reasoning"]
    id: ItemId | None = None
    summary: Annotated[list[SummaryPart], Field(fail_fast=True)]
    content: Annotated[list[ReasoningPart], Field(fail_fast=True)] | None = None
    encrypted_content: str | None = None
    status: Status | None = None


class CompactionItem(WireModel):
    """A conversation, compacted by this service."""

    type: Literal["compaction"]
    encrypted_content: str
    id: ItemId | None = None
    created_by: str | None = None


if TYPE_CHECKING:
    ExternalType = str
else:
    ExternalType = Literal[tuple(EXTERNAL_ITEMS)]


class ExternalItem(WireModel):
    """A call of a tool that does not run here, or its output, with the fields that the tool gave it."""

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


class CompactionTrigger(WireModel):
    """Asks for a response that is only a compaction of the conversation before it."""

    type: Literal["compaction_trigger"]


class ItemReference(WireModel):
    """A stored item, by its id."""

    type: Literal["item_reference"]
    id: ItemId


def _read_type(item: Any) -> Any:
    """Return an item with the type of a message or a reference that leaves it out; refuse unsupported types."""
    if not isinstance(item, dict):
        return item
    kind = item.get("type")
    if kind is None and "role" in item:
        return {**item, "type": "message"}
    if kind is None and "id" in item and item.keys() <= {"type", "id"}:
        return {**item, "type": "item_reference"}
    if isinstance(kind, str) and kind in UNSUPPORTED_ITEMS:
        raise refusal(
            "unsupported_value",
            f"Unsupported value: '{{param}}' does not support '{kind}': the tool that such items belong to is not "
            "available in this version of the service.",
            ".type",
        )
    return item


if TYPE_CHECKING:
    InputItem = WireModel
else:
    _Item = Union[
        (
            *(MessageItem, FunctionCallItem, FunctionCallOutputItem),
            *BUILT_IN_ITEMS.values(),
            *(ReasoningItem, CompactionItem, CompactionTrigger, ItemReference, ExternalItem),
        )
    ]
    InputItem = Annotated[Annotated[_Item, Field(discriminator="type")], BeforeValidator(_read_type)]

InputItems = Annotated[list[InputItem], Field(fail_fast=True)]
Input = Annotated[str, Tag("?string")] | Annotated[InputItems, Tag("?array of objects")]
