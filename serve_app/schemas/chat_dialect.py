"""vLLM's dialect of a chat: its own options, and the rewriting of OpenAI's fields that vLLM reads in another way.

Rewrites only bodies that `ChatRequest` has accepted, and only where they need it.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field

from deployments.models.contract.custom_tools import FIELD as CUSTOM_TOOLS
from serve_app.schemas.base import SMALLEST_TEMPERATURE, SMALLEST_TOP_P, Refused, clash, refusal
from serve_app.schemas.custom_tools import arguments_of
from serve_app.schemas.engine_options import NOT_FOR_THE_ENGINE, GenerationOptions
from serve_app.schemas.messages import AssistantMessage, Message
from serve_app.schemas.refused_options import REFUSED_IN_CHAT
from serve_app.schemas.structured_outputs import rewrite_form
from serve_app.schemas.tool_calls import CustomToolCall
from serve_app.schemas.tools import ChatCustomTool
from serve_app.validation.body import is_json_object

DROPPED = frozenset(
    {
        "audio",
        "metadata",
        "modalities",
        "moderation",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
        "web_search_options",
        *NOT_FOR_THE_ENGINE,
        *REFUSED_IN_CHAT,
    }
)
_ASSISTANT_FIELDS = frozenset({"role", "content", "name", "tool_calls", "reasoning"})

Body = dict[str, Any]

MAX_TEMPLATE_ARGUMENTS = 64
MAX_TEMPLATE_BYTES = 16_384
MAX_DOCUMENTS = 256
# Arguments that the service or the engine sets.
_OWN_TEMPLATE_ARGUMENTS = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "conversation",
        "documents",
        "max_length",
        "messages",
        "padding",
        "return_assistant_tokens_mask",
        "return_dict",
        "return_tensors",
        "tokenize",
        "tokenizer_kwargs",
        "tools",
        "truncation",
    }
)


def _check_template_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    if len(arguments) > MAX_TEMPLATE_ARGUMENTS or len(orjson.dumps(arguments)) > MAX_TEMPLATE_BYTES:
        raise refusal(
            "object_above_max_properties",
            f"Invalid '{{param}}': expected an object with at most {MAX_TEMPLATE_ARGUMENTS} properties and "
            f"{MAX_TEMPLATE_BYTES} bytes.",
        )
    for name in arguments:
        if name in _OWN_TEMPLATE_ARGUMENTS:
            raise refusal(
                "unsupported_parameter",
                "Unsupported parameter: '{param}' is set by the service. Use the field of the request.",
                f".{name}",
            )
    return arguments


def texts_within(value: Any) -> Iterable[str]:
    """Yield every text in a JSON value, without keys."""
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict):
            pending.extend(found.values())
        elif isinstance(found, list):
            pending.extend(found)


TemplateArguments = Annotated[dict[str, Any], AfterValidator(_check_template_arguments)]


def check_prompt_end(continues_message: bool | None, adds_prompt: bool | None) -> None:
    """Check that the model continues the last message or begins a new one, not both."""
    if continues_message and adds_prompt:
        raise clash("continue_final_message", "add_generation_prompt", "continue_final_message")


class ChatOptions(GenerationOptions):
    """vLLM's options of a chat: for its template, and for what the answer shows.

    Args:
        add_generation_prompt: `false` leaves out the end of the prompt that asks for an answer.
        continue_final_message: the answer continues the last message; not with `add_generation_prompt`.
        echo: the answer begins with the last message, if that has the role of the answer.
        documents: documents for chat templates that support them.
        chat_template_kwargs: arguments of the model's chat template, such as `enable_thinking`.
        include_reasoning: `false` hides the reasoning; its tokens still count.
        return_prompt_text: returns `prompt_text`, the prompt that the chat template created.
    """

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = None
    documents: Annotated[list[dict[str, str]], Field(fail_fast=True, max_length=MAX_DOCUMENTS)] | None = None
    chat_template_kwargs: TemplateArguments | None = None
    include_reasoning: bool | None = None
    return_prompt_text: bool | None = None

    # Known, and refused when set.
    chat_template: Refused = None
    media_io_kwargs: Refused = None
    return_assistant_tokens_mask: Refused = None

    def template_texts(self) -> list[str]:
        """Return the texts, besides the messages, that the template may put into the prompt."""
        return [*texts_within(self.documents), *texts_within(self.chat_template_kwargs)]


def needs_rewrite(message: Message, has_developer_role: bool) -> bool:
    """Return whether the engine needs a message rewritten."""
    if message.role == "function" or (message.role == "developer" and not has_developer_role):
        return True
    if isinstance(message, AssistantMessage):
        if not message.model_fields_set <= _ASSISTANT_FIELDS:
            return True
        for call in message.tool_calls or ():
            if isinstance(call, CustomToolCall) or "index" in call.model_fields_set:
                return True
            if not is_json_object(call.function.arguments):
                return True
    content = message.content
    return isinstance(content, list) and any("prompt_cache_breakpoint" in part.model_fields_set for part in content)


def rewrite(raw: bytes, has_developer_role: bool) -> bytes:
    """Return a validated body in the engine's dialect."""
    body: Body = {key: value for key, value in orjson.loads(raw).items() if value is not None and key not in DROPPED}
    _rewrite_messages(body["messages"], has_developer_role)
    _rewrite_functions(body)
    _rewrite_tool_choice(body)
    _rewrite_custom_tools(body)
    _rewrite_sampling(body)
    rewrite_form(body)
    if "stream_options" in body:
        body["stream_options"].pop("include_obfuscation", None)
    return orjson.dumps(body)


def _rewrite_sampling(body: Body) -> None:
    if body.get("top_p") == 0:
        body["top_p"] = SMALLEST_TOP_P
    if body.get("temperature") == 0 and body.get("n", 1) > 1:
        body["temperature"] = SMALLEST_TEMPERATURE


def _rewrite_functions(body: Body) -> None:
    functions = body.pop("functions", None)
    call = body.pop("function_call", None)
    if functions:
        body["tools"] = [{"type": "function", "function": function} for function in functions]
        body["parallel_tool_calls"] = False  # The older answer has room for one call.
    if call is not None:
        body["tool_choice"] = call if isinstance(call, str) else {"type": "function", "function": call}


def _rewrite_tool_choice(body: Body) -> None:
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not body.get("tools"):
        del body["tool_choice"]
    elif isinstance(choice, dict) and choice["type"] == "allowed_tools":
        allowed = choice["allowed_tools"]
        names = {tool[tool["type"]]["name"] for tool in allowed["tools"]}
        body["tools"] = [tool for tool in body["tools"] if tool[tool["type"]]["name"] in names]
        body["tool_choice"] = allowed["mode"]


def _rewrite_custom_tools(body: Body) -> None:
    custom: dict[str, str | None] = {}
    for index, tool in enumerate(body.get("tools") or ()):
        if tool["type"] == "custom":
            parsed = ChatCustomTool.model_validate(tool)
            grammar = parsed.custom.grammar
            custom[parsed.custom.name] = None if grammar is None else grammar.to_ebnf()
            body["tools"][index] = parsed.to_function()
    if custom:
        body[CUSTOM_TOOLS] = custom
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice["type"] == "custom":
        body["tool_choice"] = {"type": "function", "function": choice["custom"]}


def _rewrite_messages(messages: list[Body], has_developer_role: bool) -> None:
    call_id = ""
    for index, message in enumerate(messages):
        match message["role"]:
            case "developer" if not has_developer_role:
                message["role"] = "system"
            case "assistant":
                call_id = f"call_{index}"
                _rewrite_assistant(message, call_id)
            case "function":
                message["role"] = "tool"
                message["tool_call_id"] = call_id or f"call_{index}"
                message["content"] = message["content"] or ""
        if isinstance(message.get("content"), list):
            for part in message["content"]:
                part.pop("prompt_cache_breakpoint", None)


def _rewrite_assistant(message: Body, call_id: str) -> None:
    refusal = message.pop("refusal", None)
    if refusal and message.get("content") is None:
        message["content"] = refusal
    thought = message.pop("reasoning_content", None)
    if thought is not None and message.get("reasoning") is None:
        message["reasoning"] = thought
    call = message.pop("function_call", None)
    if call is not None:
        message["tool_calls"] = [{"id": call_id, "type": "function", "function": call}]
    for field in ("annotations", "audio"):
        message.pop(field, None)
    for field in ("tool_calls", "reasoning", "name"):
        if not message.get(field):
            message.pop(field, None)
    for tool_call in message.get("tool_calls", ()):
        tool_call.pop("index", None)
        if (custom := tool_call.pop("custom", None)) is not None:
            function = {"name": custom["name"], "arguments": arguments_of(custom["input"])}
            tool_call |= {"type": "function", "function": function}
        # vLLM would put the function's name into its log and go on with an empty object.
        if not is_json_object(tool_call["function"]["arguments"]):
            tool_call["function"]["arguments"] = "{}"
