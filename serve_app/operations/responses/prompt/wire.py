"""The response object as it begins, made by `preparation`, and the body of a chat, made for `dialect`."""

from collections.abc import Sequence
from typing import Any

from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.history import Message
from serve_app.operations.responses.tools.approvals import function_name
from serve_app.operations.responses.tools.tool_set import OfferedFunction
from serve_app.schemas.json_schema import check_json_schema
from serve_app.schemas.responses.mcp import AllowedMcp, McpChoice
from serve_app.schemas.responses.request import (
    JsonSchemaFormat,
    PromptedRequest,
    Reasoning,
    ResponseRequest,
    TextConfig,
)
from serve_app.schemas.responses.tools import AllowedTools, BuiltInChoice, FunctionTool, NamedChoice, Tool


def create_response(request: ResponseRequest, response_id: str, model: str, created_at: int, *, stored: bool) -> Item:
    """Return the object of a response that has not begun: every key of the interface, null where nothing is known."""
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "in_progress",
        "background": bool(request.background),
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "model": model,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": _reasoning_to_wire(request.reasoning),
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": stored,
        "temperature": _or(request.temperature, 1.0),
        "text": text_to_wire(request.text),
        "tool_choice": _choice_to_wire(request),
        "tools": [tool_to_wire(tool) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": _or(request.top_p, 1.0),
        "presence_penalty": _or(request.presence_penalty, 0.0),
        "frequency_penalty": _or(request.frequency_penalty, 0.0),
        "truncation": request.truncation or "disabled",
        "usage": None,
        "user": request.user,
        "metadata": request.metadata or {},
        "conversation": {"id": request.conversation_id} if request.conversation_id else None,
    }


def _reasoning_to_wire(reasoning: Reasoning | None) -> Item:
    if reasoning is None:
        return {"effort": None, "summary": None}
    return {"effort": reasoning.effort, "summary": reasoning.summary or reasoning.generate_summary}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def text_to_wire(text: TextConfig | None) -> Item:
    """Return `text` as a response echoes it."""
    wanted = text.format if text is not None else None
    rendered: Item = {"type": "text"}
    if isinstance(wanted, JsonSchemaFormat):
        rendered = {
            "type": "json_schema",
            "name": wanted.name,
            "description": wanted.description,
            "schema": wanted.definition,
            "strict": bool(wanted.strict),
        }
    elif wanted is not None:
        rendered = {"type": wanted.type}
    return {"format": rendered, "verbosity": (text.verbosity if text is not None else None) or "medium"}


def tool_to_wire(tool: Tool) -> Item:
    """Return a tool as a response echoes it.

    Functions are strict unless the client says otherwise, as far as their schema lets them be.
    """
    if not isinstance(tool, FunctionTool):
        return tool.to_wire()
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": _is_strict(tool),
    }


def _is_strict(tool: FunctionTool) -> bool:
    if tool.strict is not None or tool.parameters is None:
        return bool(tool.strict)
    try:
        check_json_schema(tool.parameters, "", strict=True)
    except Exception:  # The schema is within bounds, so it is only not strict.
        return False
    return True


def _choice_to_wire(request: ResponseRequest) -> Any:
    choice = request.tool_choice
    return (choice or "auto") if choice is None or isinstance(choice, str) else choice.model_dump()


def create_chat(
    request: PromptedRequest,
    messages: list[Message],
    offered: Sequence[OfferedFunction] = (),
    *,
    may_force: bool = True,
) -> Item:
    """Return the body of the chat completion that makes a response's text.

    `offered` are the functions of the tools that the service runs. A choice that forces a call is for the first
    generation, which `may_force` says this is: once the call is made, the model is free to answer.
    """
    chat: Item = {"model": request.model, "messages": messages}
    tools, choice = _tools_of(request, offered)
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
    return sampling | request.sampling_options()


def _tools_of(request: PromptedRequest, offered: Sequence[OfferedFunction]) -> tuple[list[Item], Any]:
    """Return the tools of the chat, the client's functions first, and the choice among them."""
    own = [tool for tool in request.tools or () if isinstance(tool, FunctionTool)]
    choice: Any = "auto"
    match request.tool_choice:
        case AllowedTools() as allowed:
            own = [tool for tool in own if tool.name in allowed.functions]
            offered = [one for one in offered if _is_allowed(allowed, one)]
            choice = allowed.mode
        case NamedChoice() as named:
            choice = {"type": "function", "function": {"name": named.name}}
        case BuiltInChoice() | McpChoice() as wanted:
            chosen = [one for one in offered if _is_wanted(wanted, one)]
            if len(chosen) == 1:
                choice = {"type": "function", "function": {"name": chosen[0].name}}
            elif chosen:
                own, offered, choice = [], chosen, "required"
        case str() as mode:
            choice = mode
    return [*map(_function_of, own), *(one.function for one in offered)], choice


def _is_wanted(wanted: BuiltInChoice | McpChoice | AllowedMcp, offered: OfferedFunction) -> bool:
    """Return whether a function is the one that a choice names, or belongs to the tool that it names."""
    if isinstance(wanted, BuiltInChoice):
        return offered.type == wanted.type
    is_theirs = offered.server_label == wanted.server_label
    return is_theirs and (wanted.name is None or offered.name == function_name(wanted.server_label, wanted.name))


def _is_allowed(allowed: AllowedTools, offered: OfferedFunction) -> bool:
    return offered.type in allowed.built_in or any(_is_wanted(one, offered) for one in allowed.remote)


def _function_of(tool: FunctionTool) -> Item:
    function: Item = {"name": tool.name, "strict": _is_strict(tool)}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.parameters is not None:
        function["parameters"] = tool.parameters
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
