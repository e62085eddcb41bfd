"""The blocks that the messages of Anthropic's interface consist of."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, Tag, model_validator

from serve_app.schemas.base import WireModel, refusal

_IMAGE_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
_TEXT_TYPES = re.compile(r"text/[\w.+-]+")

Text = Annotated[str, Tag("?string")]


class Block(WireModel):
    """A part of a message. `cache_control` has no effect: the cache here finds the prefixes of prompts itself.

    Args:
        cache_control: accepted for compatibility; has no effect.
    """

    cache_control: dict[str, Any] | None = None


class TextBlock(Block):
    """Text.

    Args:
        text: the text.
        citations: accepted from answers; has no effect.
    """

    type: Literal["text"]
    text: str
    citations: list[Any] | None = None


class Source(WireModel):
    """The content of an image or a document: in base64, or text.

    Args:
        type: `base64` for an image, `text` for a document; others are not supported.
        media_type: the media type, such as `image/png`.
        data: the content: base64, or text.
        url: not supported: the service downloads nothing.
        file_id: not supported.
        content: not supported.
    """

    type: Literal["base64", "text", "url", "file", "content"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: Any = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.type not in ("base64", "text"):
            raise refusal(
                "unsupported_value",
                f"Unsupported value: '{{param}}' does not support '{self.type}'. The service downloads nothing: send "
                "the content itself.",
                ".type",
            )
        if self.data is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", ".data")
        return self


class ImageBlock(Block):
    """An image."""

    type: Literal["image"]
    source: Source

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.source.type != "base64" or self.source.media_type not in _IMAGE_TYPES:
            raise refusal(
                "unsupported_value",
                "Unsupported value: '{param}'. An image must be in base64, as PNG, JPEG, WebP or GIF.",
                ".source.media_type",
            )
        return self


class DocumentBlock(Block):
    """A document of text.

    Args:
        title: the document's title, for the model.
        context: what the document is, for the model.
        citations: accepted for compatibility; has no effect.
    """

    type: Literal["document"]
    source: Source
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.source.type != "text" or not _TEXT_TYPES.fullmatch(self.source.media_type or "text/plain"):
            raise refusal(
                "unsupported_value",
                "Unsupported value: '{param}'. Only text can be read: send the text of a document.",
                ".source.media_type",
            )
        return self


class ThinkingBlock(Block):
    """The model's reasoning, as it was answered.

    Args:
        thinking: the reasoning.
        signature: the signature, as an answer has it.
    """

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Block):
    """Reasoning that another service encrypted. It is left out.

    Args:
        data: the encrypted reasoning.
    """

    type: Literal["redacted_thinking"]
    data: str


class ToolUseBlock(Block):
    """A call that the model made.

    Args:
        id: the id of the call, which its result refers to.
        name: the tool's name.
        input: the arguments.
        caller: accepted from answers; has no effect.
    """

    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(min_length=1, max_length=128)]
    input: dict[str, Any]
    caller: Any = None


class ServerToolUseBlock(Block):
    """A call that another service carried out, in the history of a conversation.

    Args:
        type: what carried it out: the service itself, or an MCP server.
        id: the id of the call, which its result refers to.
        name: the tool's name.
        input: the arguments.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal["server_tool_use", "mcp_tool_use"]
    id: Annotated[str, Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(min_length=1, max_length=128)]
    input: dict[str, Any]


class ServerToolResultBlock(Block):
    """What such a call came to. The model reads it as JSON.

    Args:
        type: the tool that was called.
        tool_use_id: the id of the call that this is the result of.
        content: the result.
    """

    model_config = ConfigDict(extra="ignore")

    type: Literal[
        "web_search_tool_result",
        "web_fetch_tool_result",
        "code_execution_tool_result",
        "bash_code_execution_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "advisor_tool_result",
        "mcp_tool_result",
    ]
    tool_use_id: Annotated[str, Field(min_length=1, max_length=256)]
    content: Any = None


class SearchResultBlock(Block):
    """A text that the client has found for the model.

    Args:
        source: where the text is from.
        title: the text's title.
        content: the text, in blocks.
        citations: accepted for compatibility; has no effect.
    """

    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[TextBlock], Field(fail_fast=True)]
    citations: dict[str, Any] | None = None


class ToolReferenceBlock(Block):
    """A tool that a search has found: the model may use it from here on.

    Args:
        tool_name: the tool's name.
    """

    type: Literal["tool_reference"]
    tool_name: str


ResultParts = Annotated[
    list[
        Annotated[
            TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock,
            Field(discriminator="type"),
        ]
    ],
    Field(fail_fast=True),
    Tag("?array of objects"),
]


class ToolResultBlock(Block):
    """The result of a call.

    Args:
        tool_use_id: the id of the call that this is the result of.
        content: the result: a text, or blocks.
        is_error: whether the call failed.
    """

    type: Literal["tool_result"]
    tool_use_id: Annotated[str, Field(min_length=1, max_length=256)]
    content: Text | ResultParts | None = None
    is_error: bool | None = None


UserBlocks = Annotated[
    list[
        Annotated[
            TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolResultBlock, Field(discriminator="type")
        ]
    ],
    Field(fail_fast=True, min_length=1),
    Tag("?array of objects"),
]
AssistantBlocks = Annotated[
    list[
        Annotated[
            TextBlock
            | ThinkingBlock
            | RedactedThinkingBlock
            | ToolUseBlock
            | ServerToolUseBlock
            | ServerToolResultBlock,
            Field(discriminator="type"),
        ]
    ],
    Field(fail_fast=True),
    Tag("?array of objects"),
]
TextBlocks = Annotated[list[TextBlock], Field(fail_fast=True), Tag("?array of objects")]


class UserTurn(WireModel):
    """A message of the user, with the results of calls.

    Args:
        content: what the user says: a text, or blocks.
    """

    role: Literal["user"]
    content: Text | UserBlocks


class AssistantTurn(WireModel):
    """A message of the model.

    Args:
        content: what the model said: a text, or blocks.
    """

    role: Literal["assistant"]
    content: Text | AssistantBlocks


class NamedTool(WireModel):
    """A tool of the request, by its name.

    Args:
        name: the tool's name.
    """

    type: Literal["tool_reference"]
    name: str


class ToolChangeBlock(Block):
    """A tool that the model may use from here on, or may not any more.

    Args:
        type: whether the tool comes or goes.
        tool: the tool.
    """

    type: Literal["tool_addition", "tool_removal"]
    tool: NamedTool


class SystemTurn(WireModel):
    """Instructions in the middle of a conversation.

    Args:
        content: the instructions: a text, or blocks.
    """

    role: Literal["system"]
    content: (
        Text
        | Annotated[
            list[Annotated[TextBlock | ToolChangeBlock, Field(discriminator="type")]],
            Field(fail_fast=True),
            Tag("?array of objects"),
        ]
    )


Turns = Annotated[
    list[Annotated[UserTurn | AssistantTurn | SystemTurn, Field(discriminator="role")]],
    Field(fail_fast=True, min_length=1),
]
