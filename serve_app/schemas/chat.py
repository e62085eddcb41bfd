"""The body of POST /v1/chat/completions.

It has every field of OpenAI's current schema. Fields that would change the answer and are not supported are refused by
name; those that cannot change it are accepted and ignored.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from serve_app.schemas.base import (
    CacheKey,
    CacheRetention,
    Effort,
    Ignored,
    LogitBias,
    MaxTokens,
    Metadata,
    ModelId,
    NumChoices,
    Penalty,
    Refused,
    SafetyIdentifier,
    Seed,
    ServiceTier,
    Stop,
    StreamOptions,
    Temperature,
    TopLogprobs,
    TopP,
    User,
    check_stream_options,
    check_unsupported,
    clash,
    estimate_tokens,
    invalid,
    only_when,
    refusal,
    unsupported_value,
)
from serve_app.schemas.chat_dialect import DROPPED, ChatOptions, check_prompt_end, needs_rewrite, rewrite
from serve_app.schemas.messages import IMAGE_TOKENS, Messages, check_conversation, num_images, texts_of
from serve_app.schemas.moderation_option import RequestModeration
from serve_app.schemas.refused_options import REFUSED_IN_CHAT
from serve_app.schemas.structured_outputs import ResponseFormat, StructuralTagFormat, check_response_format
from serve_app.schemas.tools import (
    AllowedToolsChoice,
    ChatCustomTool,
    ChatFunctionTool,
    FunctionName,
    LegacyFunctionCall,
    LegacyFunctions,
    NamedToolChoice,
    ToolChoice,
    Tools,
    check_custom_tools,
    check_parameters,
    check_tool_choice,
    estimate_tools,
    name_of,
)

AFFINITY_CHARS = 1024
_MESSAGE_TOKENS = 4  # About what a template adds around each message and before the answer.
_UNSUPPORTED = ("audio", "web_search_options")


class ChatRequest(ChatOptions):
    """A request for a chat completion, within the bounds of the specification.

    Args:
        messages: the conversation so far, oldest message first.
        stream: returns the answer as server-sent events while the model writes it.
        max_tokens: the older name of `max_completion_tokens`. Send only one of the two.
        max_completion_tokens: the max tokens of each answer, reasoning included. Left out, the model's context is the
            bound.
        presence_penalty: above 0, tokens that have appeared at all become less likely.
        frequency_penalty: above 0, tokens become less likely the more often they have appeared.
        logprobs: returns the log probability of each token of the answer.
        response_format: the form that the answer must have: text, any JSON object, or JSON that fits a schema.
        tools: the functions and custom tools that the model may call.
        tool_choice: `auto` lets the model decide, `none` forbids calls, `required` forces one. An object names a tool,
            or the tools that may be called.
        parallel_tool_calls: whether one answer may contain several calls.
        functions: the older name of `tools`.
        function_call: the older name of `tool_choice`.
        store: keeps the chat completion, which can then be listed and retrieved, unless the key's retention policy
            forbids it.
        prediction: accepted for compatibility; has no effect.
        verbosity: accepted for compatibility; has no effect.
        modalities: the kinds of output. Only `text` is supported.
    """

    example: ClassVar[dict[str, Any]] = {
        "model": "manta/demo-chat",
        "messages": [{"role": "user", "content": "What is a batch?"}],
    }

    prompt_field: ClassVar[str] = "messages"

    model: ModelId
    messages: Messages
    temperature: Temperature | None = 1.0
    top_p: TopP | None = 1.0
    n: NumChoices | None = 1
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    stop: Stop | None = None
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    presence_penalty: Penalty | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    logit_bias: LogitBias | None = None
    logprobs: bool | None = False
    top_logprobs: TopLogprobs | None = None
    seed: Seed | None = None
    response_format: ResponseFormat | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    functions: LegacyFunctions | None = None
    function_call: LegacyFunctionCall | None = None
    reasoning_effort: Effort | None = None
    moderation: RequestModeration | None = None

    # Accepted, and of no effect on the answer.
    metadata: Metadata | None = None
    store: bool | None = None
    user: User | None = None
    safety_identifier: SafetyIdentifier | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: CacheKey | None = None
    prompt_cache_retention: CacheRetention | None = None
    prompt_cache_options: Ignored | None = None
    prediction: Ignored | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    modalities: Annotated[list[Literal["text", "audio"]], Field(fail_fast=True, max_length=2)] | None = None

    # Known, and refused when set.
    audio: Refused = None
    web_search_options: Refused = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        check_conversation(self.messages)
        check_custom_tools(self.tools)
        check_tool_choice(self.tool_choice, self.tools)
        check_stream_options(self.stream_options, self.stream)
        if self.top_logprobs and not self.logprobs:
            raise only_when("'logprobs' is enabled", "top_logprobs")
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise clash("max_tokens", "max_completion_tokens", "max_completion_tokens")
        self.check_options(REFUSED_IN_CHAT, stream=self.is_stream, logprobs=bool(self.logprobs))
        self.check_lengths(self.max_tokens_bound())
        check_prompt_end(self.continue_final_message, self.add_generation_prompt)
        self._check_form_beside_tools()
        self._check_supported()
        self._check_functions()
        self._check_schemas()
        return self

    def _check_supported(self) -> None:
        check_unsupported(self, _UNSUPPORTED, "with this model")
        if self.modalities and "audio" in self.modalities:
            raise unsupported_value("audio", "'text'", "modalities")

    @property
    def _holds_functions(self) -> bool:
        """Whether a call of a function has to fit its schema: calls are forced, or a function is strict."""
        is_forced = self.tool_choice not in (None, "auto", "none") or isinstance(self.function_call, FunctionName)
        return is_forced or any(
            isinstance(tool, ChatFunctionTool) and tool.function.strict for tool in self.tools or ()
        )

    @property
    def has_custom_tools(self) -> bool:
        """Whether a tool takes a text instead of JSON."""
        return any(isinstance(tool, ChatCustomTool) for tool in self.tools or ())

    def _check_form_beside_tools(self) -> None:
        is_tag = isinstance(self.response_format, StructuralTagFormat)
        forms = [name for name in self.forms() if name != "response_format" or is_tag]
        if forms and self.has_tools and (self._holds_functions or self.has_custom_tools):
            raise refusal(
                "invalid_parameter_combination",
                "Setting '{param}' and tools that are forced, strict or custom at the same time is not supported.",
                forms[0],
            )

    def _check_functions(self) -> None:
        if self.functions is not None and self.tools is not None:
            raise clash("functions", "tools", "functions", " Use 'tools'.")
        call = self.function_call
        if call is None or isinstance(call, str):
            return
        if call.name not in {function.name for function in self.functions or ()}:
            raise invalid(
                f"Invalid value for '{{param}}': function '{call.name}' not found in 'functions'.", "function_call"
            )

    def _check_schemas(self) -> None:
        check_response_format(self.response_format)
        is_compiled = self._holds_functions or bool(self.forms())
        only = self.tool_choice.function.name if isinstance(self.tool_choice, NamedToolChoice) else None
        for index, tool in enumerate(self.tools or ()):
            if isinstance(tool, ChatFunctionTool):
                function, strict = tool.function, bool(tool.function.strict)
                is_held = strict or (is_compiled and only in (None, function.name))
                at = f"tools[{index}].function.parameters"
                check_parameters(function.parameters, at, strict=strict, is_compiled=is_held)
        for index, older in enumerate(self.functions or ()):
            check_parameters(older.parameters, f"functions[{index}].parameters", is_compiled=is_compiled)

    @property
    def num_choices(self) -> int:
        """How many completions are asked for."""
        return self.n or 1

    @property
    def has_images(self) -> bool:
        """Whether the model must be able to see."""
        return any(map(num_images, self.messages))

    @property
    def has_tools(self) -> bool:
        """Whether the model must be able to call tools: it is offered some and not forbidden to use them."""
        return bool(self.tools or self.functions) and self.tool_choice != "none" and self.function_call != "none"

    @property
    def max_tokens_field(self) -> str:
        """The field that `max_tokens_bound` comes from."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    def max_tokens_bound(self) -> int | None:
        """Return the max tokens of each choice, None when only the model's context bounds it."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompt_estimate_tokens(self) -> int:
        """Return about how many tokens the prompt takes, by the size of its texts."""
        total = estimate_tokens(self.prompt_texts()) + _MESSAGE_TOKENS * (len(self.messages) + 1)
        total += IMAGE_TOKENS * sum(map(num_images, self.messages))
        return total + estimate_tools(self.tools)

    def prompt_texts(self) -> list[str]:
        """Return every text in the messages, in order, and those that the template gets besides."""
        texts = [text for message in self.messages for text in texts_of(message)]
        return texts + self.template_texts()

    def affinity_prefix(self) -> str:
        """Return text that is the same for requests that begin alike, at most 1,024 characters; only to be hashed.

        It consists of the cache key, the names of tools, the system message and the first user message.
        """
        pieces = [self.prompt_cache_key or self.session_id or ""]
        pieces += map(name_of, self.tools or ())
        for message in self.messages:
            pieces.extend(text[:AFFINITY_CHARS] for text in texts_of(message))
            if message.role == "user" or sum(map(len, pieces)) >= AFFINITY_CHARS:
                break
        return "\x1f".join(pieces)[:AFFINITY_CHARS]

    def to_engine_body(self, raw: bytes, *, has_developer_role: bool = False) -> bytes:
        """Return the body in the engine's dialect: `raw`, which this was parsed from, unless it must be rewritten.

        Where the model's template lacks the developer role, it becomes system.
        """
        if self._is_engine_ready(has_developer_role):
            return raw
        return rewrite(raw, has_developer_role)

    def _is_engine_ready(self, has_developer_role: bool) -> bool:
        given = self.model_fields_set
        if not given.isdisjoint(DROPPED) or any(getattr(self, name) is None for name in given):
            return False
        if self.functions is not None or self.function_call is not None or self.form_needs_translation:
            return False
        if self.has_custom_tools:
            return False
        if not (self.tool_choice is None or isinstance(self.tool_choice, NamedToolChoice)) and (
            self.tools is None or isinstance(self.tool_choice, AllowedToolsChoice)
        ):
            return False
        if self.stream_options is not None and "include_obfuscation" in self.stream_options.model_fields_set:
            return False
        if self.top_p == 0 or (self.temperature == 0 and self.num_choices > 1):
            return False
        return not any(needs_rewrite(message, has_developer_role) for message in self.messages)
