"""The messages of a conversation, by role, and the parts that their content may have."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Tag, model_validator

from serve_app.schemas.base import NAME_PATTERN, WireModel, invalid, refusal, unsupported, unsupported_value
from serve_app.schemas.tool_calls import CalledFunction, ToolCall

IMAGE_TOKENS = 765  # What OpenAI counts for a medium picture; an estimate here.

_IMAGE_DATA = re.compile(r"data:image/(?:png|jpe?g|webp|gif);base64,")


def _check_image_url(url: str) -> str:
    if _IMAGE_DATA.match(url) is None:
        raise refusal(
            "invalid_image_url",
            "Invalid '{param}': expected a data URL that holds a base64-encoded image (data:image/png;base64,...). "
            "The service does not download images.",
        )
    return url


class PromptCacheBreakpoint(WireModel):
    """OpenAI's mark for the end of a reusable prefix; ignored, as the cache here finds prefixes itself.

    Args:
        mode: accepted for compatibility; has no effect.
    """

    mode: Literal["explicit"] | None = None


class TextPart(WireModel):
    """Text.

    Args:
        text: the text.
    """

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class ImageUrl(WireModel):
    """An image, carried in its URL.

    Args:
        url: the image as a data URL, for example `data:image/png;base64,...`.
        detail: accepted for compatibility; has no effect.
    """

    url: Annotated[str, AfterValidator(_check_image_url)]
    detail: Literal["auto", "low", "high"] | None = None


class ImagePart(WireModel):
    """An image."""

    type: Literal["image_url"]
    image_url: ImageUrl
    prompt_cache_breakpoint: PromptCacheBreakpoint | None = None


class RefusalPart(WireModel):
    """The assistant declined to answer.

    Args:
        refusal: the text with which the assistant declined.
    """

    type: Literal["refusal"]
    refusal: str


class UnsupportedPart(WireModel):
    """A part that OpenAI supports and no model here can read.

    Args:
        type: not supported.
    """

    type: Literal["input_audio", "file"]

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, data: Any) -> Any:
        raise unsupported_value(data["type"], "'text' and 'image_url'")


TextParts = Annotated[list[TextPart], Field(fail_fast=True, min_length=1), Tag("?array of objects")]
UserPart = Annotated[TextPart | ImagePart | UnsupportedPart, Field(discriminator="type")]
UserParts = Annotated[list[UserPart], Field(fail_fast=True, min_length=1), Tag("?array of objects")]
AssistantPart = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
AssistantParts = Annotated[list[AssistantPart], Field(fail_fast=True, min_length=1), Tag("?array of objects")]
Text = Annotated[str, Tag("?string")]


class SystemMessage(WireModel):
    """The developer's instructions, under the older of the two role names.

    Args:
        content: the instructions: a text, or text parts.
        name: the author's name.
    """

    role: Literal["system"]
    content: Text | TextParts
    name: str | None = None


class DeveloperMessage(WireModel):
    """The developer's instructions.

    Args:
        content: the instructions: a text, or text parts.
        name: the author's name.
    """

    role: Literal["developer"]
    content: Text | TextParts
    name: str | None = None


class UserMessage(WireModel):
    """A message of the end user.

    Args:
        content: what the user says: a text, or parts with text and images.
        name: the author's name.
    """

    role: Literal["user"]
    content: Text | UserParts
    name: str | None = None


class AssistantMessage(WireModel):
    """A message of the model, with the fields of answers that clients send back unchanged.

    Args:
        content: what the model said. May be null if it called tools.
        refusal: the text with which the model declined.
        name: the author's name.
        tool_calls: the calls that the model made. Each needs a tool message after this one.
        reasoning: the model's reasoning, for chat templates that show it again.
        reasoning_content: the older name of `reasoning`.
        annotations: accepted from answers; has no effect.
        audio: not supported.
    """

    role: Literal["assistant"]
    content: Text | AssistantParts | None = None
    refusal: str | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(fail_fast=True, max_length=128)] | None = None
    function_call: CalledFunction | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    annotations: list[Any] | None = None
    audio: dict[str, Any] | None = None


class ToolMessage(WireModel):
    """The result of a tool call.

    Args:
        content: the output of the tool: a text, or text parts.
        tool_call_id: the id of the call that this is the output of.
        name: the tool's name.
    """

    role: Literal["tool"]
    content: Text | UserParts
    tool_call_id: str = Field(min_length=1, max_length=256)
    name: str | None = None


class FunctionMessage(WireModel):
    """The result of a function, in the form that tools replaced.

    Args:
        content: the output of the function.
        name: the function's name.
    """

    role: Literal["function"]
    content: str | None
    name: str = Field(min_length=1, max_length=64, pattern=NAME_PATTERN)


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage
Messages = Annotated[list[Annotated[Message, Field(discriminator="role")]], Field(fail_fast=True, min_length=1)]


def texts_of(message: Message) -> Iterator[str]:
    """Yield every text in a message that the model will read."""
    content = message.content
    if isinstance(content, str):
        yield content
    elif content is not None:
        for part in content:
            if isinstance(part, TextPart):
                yield part.text
            elif isinstance(part, RefusalPart):
                yield part.refusal
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            yield from call.texts
        if message.function_call is not None:
            yield message.function_call.arguments
        yield message.reasoning or message.reasoning_content or ""


def num_images(message: Message) -> int:
    """Return how many images a message shows."""
    if isinstance(message, UserMessage | ToolMessage) and not isinstance(message.content, str):
        return sum(isinstance(part, ImagePart) for part in message.content)
    return 0


def check_conversation(messages: list[Message]) -> None:
    """Refuse an empty assistant message, and tool calls and tool messages that do not match."""
    calls: set[str] = set()
    unanswered: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in calls:
                raise invalid(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                    "'tool_calls'.",
                    f"messages[{index}].tool_call_id",
                )
            unanswered.discard(message.tool_call_id)
            continue
        _check_answered(unanswered, index - 1)
        if isinstance(message, AssistantMessage):
            _check_not_empty(message, index)
            calls = {call.id for call in message.tool_calls or ()}
            unanswered = set(calls)
        else:
            calls = set()
    _check_answered(unanswered, len(messages) - 1)


def _check_answered(unanswered: set[str], index: int) -> None:
    if unanswered:
        raise invalid(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. {len(unanswered)} of them did not have response messages.",
            f"messages[{index}].role",
        )


def _check_not_empty(message: AssistantMessage, index: int) -> None:
    if message.audio is not None:
        raise unsupported(f"messages[{index}].audio")
    if message.content is None and not message.tool_calls and message.function_call is None and not message.refusal:
        raise refusal(
            "invalid_type", "Invalid value for '{param}': expected a string, got null.", f"messages[{index}].content"
        )
