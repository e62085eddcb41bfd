"""The bodies of POST /v1/messages and /v1/messages/count_tokens.

Fields that cannot change an answer here are accepted. Unknown ones are refused by name.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from serve_app.schemas.anthropic.blocks import Block, Text, TextBlocks, Turns
from serve_app.schemas.base import (
    MAX_STOP_SEQUENCES,
    MaxTokens,
    ModelId,
    OperationRequest,
    Refused,
    TopP,
    WireModel,
    refusal,
)
from serve_app.schemas.tools import MAX_TOOLS, JsonSchema


def _refuse_thread(value: object) -> None:
    if value is not None:
        raise refusal(
            "unsupported_parameter",
            "Unsupported parameter: '{param}' is not supported: no conversation is kept between two requests. Send "
            "all of its messages each time.",
        )


def _refuse_anthropics(kind: object) -> object:
    if isinstance(kind, str) and kind != "custom":
        raise refusal(
            "unsupported_value",
            f"Unsupported value: '{{param}}' does not support '{kind[:64]}': there are no tools of Anthropic's here. "
            "Leave it out, or send a tool of your own with an 'input_schema'.",
        )
    return kind


ToolName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_-]+$")]


class Tool(Block):
    """A tool that the client runs; `input_schema` is a JSON schema.

    With `defer_loading` the model sees it once a search has found it.

    Args:
        type: may be left out.
        name: the tool's name.
        description: what the tool does, for the model.
        input_schema: a JSON schema of the arguments, which are an object.
        strict: makes the arguments always fit the schema.
        defer_loading: hides the tool from the model until a search has found it.
        eager_input_streaming: accepted for compatibility; has no effect.
        allowed_callers: accepted for compatibility; has no effect.
        input_examples: accepted for compatibility; has no effect.
    """

    type: Annotated[Literal["custom"] | None, BeforeValidator(_refuse_anthropics)] = None
    name: ToolName
    description: str | None = None
    input_schema: JsonSchema
    strict: bool | None = None
    defer_loading: bool | None = None
    eager_input_streaming: bool | None = None
    allowed_callers: list[str] | None = None
    input_examples: list[Any] | None = None


class ToolChoice(WireModel):
    """Whether the model calls tools, and which one.

    Args:
        type: `auto` lets the model decide, `any` forces a call, `tool` forces one of the named tool, `none` forbids
            calls.
        name: the tool to call, with the type `tool`.
        disable_parallel_tool_use: whether an answer has at most one call.
    """

    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(WireModel):
    """Whether the model reasons before it answers, for how many tokens, and whether the client sees it.

    Args:
        type: `enabled` and `adaptive` let the model reason, `disabled` does not.
        budget_tokens: how many tokens the reasoning may take.
        display: whether the answer shows the reasoning.
    """

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    display: Literal["summarized", "omitted", "full"] | None = None


class OutputFormat(WireModel):
    """The form of the answer: JSON that follows a schema.

    Args:
        definition: the JSON schema.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["json_schema"]
    definition: JsonSchema = Field(alias="schema")


class OutputConfig(WireModel):
    """How much effort an answer is worth, and its form.

    Args:
        effort: how much the model reasons before it answers.
        format: the form of the answer.
    """

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class PromptedMessages(OperationRequest):
    """A conversation, and the tools in it.

    Args:
        messages: the conversation so far, oldest message first.
        system: instructions for the model: a text, or text blocks.
        tools: the tools that the model may call.
        cache_control: accepted for compatibility; has no effect.
        context_management: accepted for compatibility; has no effect.
        speed: accepted for compatibility; has no effect.
    """

    model: ModelId
    messages: Turns
    system: Text | TextBlocks | None = None
    tools: Annotated[list[Tool], Field(fail_fast=True, max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    # Accepted, and of no effect on the answer.
    cache_control: dict[str, Any] | None = None
    context_management: dict[str, Any] | None = None
    speed: Literal["standard", "fast"] | None = None

    # Known, and refused when set.
    thread: Annotated[Refused, AfterValidator(_refuse_thread)] = None


class MessagesRequest(PromptedMessages):
    """A request for the next message of the model.

    Args:
        max_tokens: the max tokens of the answer, reasoning included.
        stream: returns the answer as server-sent events while the model writes it.
        temperature: how random the text is; 0 always takes the most likely token.
        top_k: samples among this number of most likely tokens; 0 turns it off.
        stop_sequences: texts at which the answer ends.
        metadata: accepted for compatibility; has no effect.
        service_tier: accepted for compatibility; has no effect.
        inference_geo: accepted for compatibility; has no effect.
        diagnostics: accepted for compatibility; has no effect.
    """

    example: ClassVar[dict[str, Any]] = {
        "model": "manta/demo-chat",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "What is a batch?"}],
    }

    max_tokens: MaxTokens
    stream: bool | None = False
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: TopP | None = None
    top_k: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    stop_sequences: Annotated[list[str], Field(fail_fast=True, max_length=MAX_STOP_SEQUENCES)] | None = None

    # Accepted, and of no effect on the answer.
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    inference_geo: str | None = None
    diagnostics: dict[str, Any] | None = None


class CountTokensRequest(PromptedMessages):
    """A request for the number of tokens of a prompt."""

    example: ClassVar[dict[str, Any]] = {
        "model": "manta/demo-chat",
        "messages": [{"role": "user", "content": "What is a batch?"}],
    }
