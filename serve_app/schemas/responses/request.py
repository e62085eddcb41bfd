"""The bodies of POST /v1/responses, /v1/responses/input_tokens and /v1/responses/compact.

They have every field of OpenAI's schema. Fields that would change the answer and are not supported are refused.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Tag, model_validator

from serve_app.schemas.base import (
    CacheKey,
    CacheRetention,
    Effort,
    Ignored,
    MaxTokens,
    Metadata,
    ModelId,
    OperationRequest,
    Penalty,
    Refused,
    SafetyIdentifier,
    ServiceTier,
    Temperature,
    TopLogprobs,
    TopP,
    User,
    WireModel,
    check_stream_options,
    invalid,
    refusal,
    unsupported,
)
from serve_app.schemas.custom_tools import check_grammars
from serve_app.schemas.engine_options import SamplingOptions
from serve_app.schemas.json_schema import check_json_schema
from serve_app.schemas.moderation_option import RequestModeration
from serve_app.schemas.responses.items import CompactionTrigger, Input, ToolSearchOutputItem
from serve_app.schemas.responses.text import JsonSchemaFormat, TextConfig
from serve_app.schemas.responses.tools import Tool, ToolChoice, Tools, check_tool_choice, check_tools, grammars_of
from serve_app.schemas.responses.updates import AdditionalToolsItem

Id = Annotated[str, Field(min_length=1, max_length=128)]
Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]


class Reasoning(WireModel):
    """How much the model reasons before it answers.

    Args:
        summary: adds a summary of the reasoning, which the model writes: `concise` in a few sentences, `detailed` step
            by step; `auto` is `concise`.
        generate_summary: the older name of `summary`.
        context: accepted for compatibility; has no effect.
        mode: accepted for compatibility; has no effect.
    """

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class ResponseStreamOptions(WireModel):
    """What a stream contains besides the answer.

    Args:
        include_obfuscation: accepted for compatibility; streams have no padding.
    """

    include_obfuscation: bool | None = None


class ContextManagement(WireModel):
    """When the conversation is compacted before the model continues it: by default at 80 % of the model's context.

    Args:
        compact_threshold: the number of tokens beyond which the conversation is compacted.
    """

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class ConversationReference(WireModel):
    """A conversation, by its id.

    Args:
        id: the conversation's id.
    """

    id: Id


class PromptedRequest(OperationRequest):
    """The model's input, and how it answers.

    Args:
        input: a text, or items: messages, calls with their outputs, reasoning.
        instructions: instructions for the model, placed before the input. They are not carried over to the next
            response.
        previous_response_id: the response to continue. Send either this or `conversation`.
        conversation: the conversation that the response belongs to, which its items are added to.
        tools: the functions and custom tools that the model may call, and the service's own tools. Items of the input
            may bring more.
        tool_choice: `auto` lets the model decide, `none` forbids calls, `required` forces one. An object names a tool,
            or the tools that may be called.
        parallel_tool_calls: whether the model may make several calls at once.
        truncation: `auto` leaves out the oldest items if the input is longer than the context; `disabled` refuses it.
    """

    prompt_field: ClassVar[str] = "input"

    model: ModelId
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: Id | None = None
    conversation: Annotated[str, Tag("?string")] | Annotated[ConversationReference, Tag("?object")] | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    reasoning: Reasoning | None = None
    text: TextConfig | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"

    @model_validator(mode="after")
    def _check_prompt(self) -> Self:
        if self.previous_response_id is not None and self.conversation is not None:
            raise refusal(
                "mutually_exclusive_parameters",
                "Mutually exclusive parameters: '{param}' and 'conversation'. Ensure you are only providing one of: "
                "'previous_response_id' or 'conversation'.",
                "previous_response_id",
            )
        brought = dict(self._brought_tools())
        check_tool_choice(self.tool_choice, [*(self.tools or ()), *chain.from_iterable(brought.values())])
        if self.text is not None and isinstance(self.text.format, JsonSchemaFormat):
            wanted = self.text.format
            check_json_schema(wanted.definition, "text.format.schema", strict=bool(wanted.strict))
        lists = {"tools": self.tools or [], **brought}
        for at, tools in lists.items():
            check_tools(tools, at)
        check_grammars(chain.from_iterable(grammars_of(tools, at) for at, tools in lists.items()))
        return self

    def _brought_tools(self) -> Iterator[tuple[str, list[Tool]]]:
        """Yield the lists of tools among the input's items, each with its path."""
        for index, item in enumerate(self.input if isinstance(self.input, list) else ()):
            if isinstance(item, AdditionalToolsItem | ToolSearchOutputItem):
                yield f"input[{index}].tools", item.tools

    @property
    def conversation_id(self) -> str | None:
        """The id of the conversation that the response belongs to."""
        if isinstance(self.conversation, ConversationReference):
            return self.conversation.id
        return self.conversation


class ResponseRequest(SamplingOptions, PromptedRequest):
    """A request for a response, within the bounds of the specification.

    Args:
        presence_penalty: above 0, tokens that have appeared at all become less likely.
        frequency_penalty: above 0, tokens become less likely the more often they have appeared.
        max_output_tokens: the max tokens of the response, reasoning included.
        max_tool_calls: how many calls of the service's own tools the response may make.
        context_management: compacts the conversation when it becomes too long.
        include: what the response contains in addition, such as the outputs of code.
        store: whether the response is stored, so that it can be read and continued later.
        stream: returns the response as server-sent events while it is written.
        background: returns at once, and runs the response in the background.
        access_programs: accepted for compatibility; has no effect.
        background_options: accepted for compatibility; has no effect.
        image: accepted for compatibility; has no effect.
    """

    example: ClassVar[dict[str, Any]] = {"model": "manta/demo-chat", "input": "What is a batch?"}

    temperature: Temperature | None = 1.0
    top_p: TopP | None = 1.0
    presence_penalty: Penalty | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    max_output_tokens: MaxTokens | None = None
    max_tool_calls: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    top_logprobs: TopLogprobs | None = 0
    include: Annotated[list[Include], Field(fail_fast=True, max_length=16)] | None = None
    store: bool | None = True
    stream: bool | None = False
    stream_options: ResponseStreamOptions | None = None
    background: bool | None = False
    context_management: Annotated[list[ContextManagement], Field(fail_fast=True, max_length=1)] | None = None
    metadata: Metadata | None = None
    moderation: RequestModeration | None = None

    # Accepted, and of no effect on the answer.
    user: User | None = None
    safety_identifier: SafetyIdentifier | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: CacheKey | None = None
    prompt_cache_retention: CacheRetention | None = None
    prompt_cache_options: Ignored | None = None
    access_programs: Ignored | None = None
    background_options: Ignored | None = None
    image: Ignored | None = None

    # Known, and refused when set.
    prompt: Refused = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.input is None and self.prompt is None and self.previous_response_id is None and not self.conversation:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", "input")
        if self.prompt is not None:
            raise unsupported("prompt", "by this service, which stores no prompts. Send their text as 'instructions'")
        for index, item in enumerate(self.input[:-1] if isinstance(self.input, list) else ()):
            if isinstance(item, CompactionTrigger):
                raise invalid("Invalid '{param}': a 'compaction_trigger' must be last.", f"input[{index}]")
        check_stream_options(self.stream_options, self.stream)
        self.check_lengths(self.max_output_tokens)
        if self.background and self.store is False:
            raise refusal(
                "invalid_parameter_combination",
                "Invalid value for '{param}': a background response must be stored. Leave 'store' out or set it to "
                "true.",
                "background",
            )
        return self

    @property
    def is_compaction(self) -> bool:
        """Whether only a compaction of the conversation is asked for."""
        return isinstance(self.input, list) and bool(self.input) and isinstance(self.input[-1], CompactionTrigger)

    @property
    def reasoning_summary(self) -> Literal["auto", "concise", "detailed"] | None:
        """The kind of summary of the reasoning that the client asks for, if any."""
        return None if self.reasoning is None else self.reasoning.summary or self.reasoning.generate_summary

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer has the log probabilities of its tokens."""
        return bool(self.top_logprobs) or "message.output_text.logprobs" in (self.include or ())


class InputTokensRequest(PromptedRequest):
    """A request for the number of tokens that an input takes.

    Args:
        personality: accepted for compatibility; has no effect.
    """

    example: ClassVar[dict[str, Any]] = {"model": "manta/demo-chat", "input": "What is a batch?"}

    personality: str | None = None


class ResponseQuery(WireModel):
    """The query of a stored response: as an object, or as its events after a number.

    Args:
        stream: returns the events of the response instead of the object.
        starting_after: only events after this sequence number.
    """

    stream: bool = False
    starting_after: int | None = None


class CompactRequest(WireModel):
    """A request to compact a conversation.

    Args:
        input: the conversation to compact: a text, or items.
        instructions: instructions for the model that writes the summary.
        previous_response_id: compacts the conversation up to this response.
        image: accepted for compatibility; has no effect.
    """

    example: ClassVar[dict[str, Any]] = {
        "model": "manta/demo-chat",
        "input": [{"role": "user", "content": "My name is Ada."}],
    }

    model: ModelId
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: Id | None = None
    prompt_cache_key: CacheKey | None = None
    prompt_cache_retention: CacheRetention | None = None
    prompt_cache_options: Ignored | None = None
    service_tier: ServiceTier | None = None
    image: Ignored | None = None
    metadata: Metadata | None = None

    @model_validator(mode="after")
    def _check_input(self) -> Self:
        if self.input is None and self.previous_response_id is None:
            raise refusal("missing_required_parameter", "Missing required parameter: '{param}'.", "input")
        return self
