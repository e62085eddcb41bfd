"""From a response to the chats that generate its text, and from a chat's errors to those of the response."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from deployments.models.contract.errors import ContextLengthExceeded, EngineError, RequestRejected
from serve_app.errors.api import BadRequest, invalid_value, shorten
from serve_app.operations.chat import check_features
from serve_app.operations.dialects import checked, renamed
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.compaction import SUMMARIZE, SUMMARY_TOKENS
from serve_app.operations.responses.prompt.history import Message
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.tools.tool_set import OfferedFunction, function_name
from serve_app.operations.responses.tools.wire import is_strict
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.responses.functions import ClientFunction, CustomTool, GrammarFormat, find_function
from serve_app.schemas.responses.mcp import AllowedMcp, McpChoice
from serve_app.schemas.responses.request import PromptedRequest, ResponseRequest
from serve_app.schemas.responses.text import JsonSchemaFormat, TextConfig
from serve_app.schemas.responses.tools import AllowedTools, BuiltInChoice, NamedChoice

_FUNCTION = re.compile(r"tools\[(\d+)\]\.(?:function|custom)(.*)")
_PARAMS = {
    "messages": "input",
    "response_format.json_schema.schema": "text.format.schema",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
}


@dataclass(frozen=True, slots=True)
class GenerationChat:
    """The checked chat of a generation, and its bytes."""

    body: ChatRequest
    raw: bytes


def create_chat_request(
    turn: Turn, messages: list[Message], offered: Sequence[OfferedFunction], *, may_force: bool = True
) -> GenerationChat:
    """Return the chat of a generation; see `create_chat`.

    Raises:
        BadRequest: the model does not support the request.
    """
    own = callable_functions(turn)
    chat = create_chat(turn.request, messages, own, offered, may_force=may_force)
    chat["stream"] = turn.is_stream
    body = check_chat(chat, own)
    check_features(body, turn.engine.card, param="input")
    return GenerationChat(body, orjson.dumps(chat))


def summary_chat(turn: Turn, messages: Sequence[Message]) -> GenerationChat:
    """Return the chat that sums up a conversation. Raises BadRequest if the model does not support the request."""
    chat = {
        "model": turn.request.model,
        "messages": [*messages, {"role": "user", "content": SUMMARIZE}],
        "temperature": 0.0,
        "max_completion_tokens": SUMMARY_TOKENS,
        "stream": turn.is_stream,
    }
    return GenerationChat(check_chat(chat, ()), orjson.dumps(chat))


def check_chat(chat: dict[str, Any], own: Sequence[ClientFunction]) -> ChatRequest:
    """Return the chat of a request, checked; `own` are the client's functions in it, which are its first tools.

    Raises:
        BadRequest: something in it is not valid; names the field of the request.
    """
    return checked(chat, ChatRequest, lambda error: in_words_of(own, error))


def in_words_of(own: Sequence[ClientFunction], error: BadRequest) -> BadRequest:
    """Return an error of a chat as one of the request for the response."""
    return renamed(error, param_of(error.param, own))


def translated(error: EngineError, own: Sequence[ClientFunction]) -> EngineError:
    """Return an engine's refusal with the field names of the request; other failures unchanged.

    `own` are the client's functions in the chat.
    """
    if isinstance(error, ContextLengthExceeded):
        return ContextLengthExceeded("input", error.limit, error.num_tokens, error.is_lower_bound)
    if not isinstance(error, RequestRejected):
        return error
    told = in_words_of(own, BadRequest(error.message, param=error.param, code=error.code))
    return RequestRejected(told.message, param=told.param, code=told.code)


def param_of(param: str | None, own: Sequence[ClientFunction] = ()) -> str | None:
    """Return the name of a chat's field in the request for the response."""
    if param is None:
        return None
    if param.startswith("messages"):
        return "input"
    if found := _FUNCTION.match(param):
        position = int(found[1])
        # The functions after these are of the service's own tools.
        field = found[2].replace(".format.grammar.", ".format.")  # A chat nests the two fields of a grammar once more.
        return f"{own[position].at}{field}" if position < len(own) else "tools"
    return _PARAMS.get(param, param)


def callable_functions(turn: Turn) -> list[ClientFunction]:
    """Return the client's functions in the next chat of a turn."""
    return allowed_functions(turn.request, turn.tools.client_functions())


def allowed_functions(request: PromptedRequest, functions: Sequence[ClientFunction]) -> list[ClientFunction]:
    """Return those of the client's functions that the request allows the model to call."""
    allowed = request.tool_choice
    if not isinstance(allowed, AllowedTools):
        return list(functions)
    named = {id(find_function(one.name, functions, one.type)) for one in allowed.functions}
    return [one for one in functions if id(one) in named or (one.built_in and one.called in allowed.built_in)]


def create_chat(
    request: PromptedRequest,
    messages: list[Message],
    own: Sequence[ClientFunction] = (),
    offered: Sequence[OfferedFunction] = (),
    *,
    may_force: bool = True,
) -> Item:
    """Return the body of the chat completion that generates a response's text.

    `own` are the client's functions that the model may call, `offered` are the functions of the service's tools. A
    choice that forces a call holds for the first generation, as `may_force` says: after the call the model is free to
    answer.
    """
    chat: Item = {"model": request.model, "messages": messages}
    tools, choice = _tools_of(request, own, offered)
    if tools:
        chat |= {"tools": tools, "tool_choice": choice if may_force or choice == "none" else "auto"}
        if request.parallel_tool_calls is False:
            chat["parallel_tool_calls"] = False
    response_format = _format_of(request.text)
    if response_format is not None:
        chat["response_format"] = response_format
    if request.reasoning is not None and request.reasoning.effort is not None:
        chat["reasoning_effort"] = request.reasoning.effort
    if isinstance(request, ResponseRequest):
        chat |= _sampling_of(request)
    return chat


def _sampling_of(request: ResponseRequest) -> Item:
    names = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "prompt_cache_key")
    sampling: Item = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    if request.max_output_tokens is not None:
        sampling["max_completion_tokens"] = request.max_output_tokens
    if request.wants_logprobs:
        sampling |= {"logprobs": True, "top_logprobs": request.top_logprobs or 0}
    if request.moderation is not None:
        sampling["moderation"] = request.moderation.model_dump()
    return sampling | request.sampling_options()


def _tools_of(
    request: PromptedRequest, own: Sequence[ClientFunction], offered: Sequence[OfferedFunction]
) -> tuple[list[Item], Any]:
    """Return the tools of the chat, the client's functions first, and the tool choice."""
    choice: Any = "auto"
    match request.tool_choice:
        case AllowedTools() as allowed:
            offered = [one for one in offered if _is_allowed(allowed, one)]
            choice = allowed.mode
        case NamedChoice() as named:
            choice = _chosen(_find_shown(named, own).called, named.type)
        case BuiltInChoice() | McpChoice() as wanted:
            theirs = [
                one for one in own if one.built_in and isinstance(wanted, BuiltInChoice) and one.called == wanted.type
            ]
            chosen = [one for one in offered if _is_wanted(wanted, one)]
            if theirs or len(chosen) == 1:
                choice = _chosen(theirs[0].called if theirs else chosen[0].name)
            elif chosen:
                own, offered, choice = [], chosen, "required"
        case str() as mode:
            choice = mode
    return [*map(_function_of, own), *(one.function for one in offered)], choice


def _chosen(name: str, kind: str = "function") -> Item:
    return {"type": kind, kind: {"name": name}}


def _find_shown(named: NamedChoice, own: Sequence[ClientFunction]) -> ClientFunction:
    """Return the tool that a choice names. Raises BadRequest if no search has found it yet."""
    function = find_function(named.name, own, named.type)
    if function is None:
        raise invalid_value(
            f"Invalid value for 'tool_choice.name': the tool '{shorten(named.name)}' is deferred, and no search has "
            "found it yet. Leave 'defer_loading' out to force a call of it.",
            "tool_choice.name",
        )
    return function


def _is_wanted(wanted: BuiltInChoice | McpChoice | AllowedMcp, offered: OfferedFunction) -> bool:
    """Return whether a choice names a function or its tool."""
    if isinstance(wanted, BuiltInChoice):
        return offered.type == wanted.type
    is_theirs = offered.server_label == wanted.server_label
    return is_theirs and (wanted.name is None or offered.name == function_name(wanted.server_label, wanted.name))


def _is_allowed(allowed: AllowedTools, offered: OfferedFunction) -> bool:
    return offered.type in allowed.built_in or any(_is_wanted(one, offered) for one in allowed.remote)


def _function_of(one: ClientFunction) -> Item:
    described: Item = {"name": one.called}
    if one.description is not None:
        described["description"] = one.description
    if isinstance(one.tool, CustomTool):
        if isinstance(one.tool.format, GrammarFormat):
            grammar = {"syntax": one.tool.format.syntax, "definition": one.tool.format.definition}
            described["format"] = {"type": "grammar", "grammar": grammar}
        return {"type": "custom", "custom": described}
    function: Item = {**described, "strict": is_strict(one.tool)}
    if one.tool.parameters is not None:
        function["parameters"] = one.tool.parameters
    return {"type": "function", "function": function}


def _format_of(text: TextConfig | None) -> Item | None:
    wanted = text.format if text is not None else None
    if wanted is None or wanted.type == "text":
        return None
    if isinstance(wanted, JsonSchemaFormat):
        schema: Item = {"name": wanted.name, "schema": wanted.definition, "strict": bool(wanted.strict)}
        if wanted.description is not None:
            schema["description"] = wanted.description
        return {"type": "json_schema", "json_schema": schema}
    return {"type": wanted.type}
