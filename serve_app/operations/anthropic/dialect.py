"""From a request in Anthropic's dialect to a chat, and from a chat's errors to those of the request."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from deployments.models.contract.engine import ModelCard
from serve_app.errors.api import BadRequest, invalid_value
from serve_app.operations.dialects import renamed
from serve_app.operations.responses.prompt.outputs import CALL_WENT_WRONG, NO_OUTPUT, UNSEEN, readable_json
from serve_app.schemas.anthropic.blocks import (
    AssistantTurn,
    DocumentBlock,
    ImageBlock,
    SearchResultBlock,
    ServerToolResultBlock,
    ServerToolUseBlock,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ToolChangeBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserTurn,
)
from serve_app.schemas.anthropic.request import MessagesRequest, PromptedMessages, Tool
from serve_app.schemas.tools import called_name

Chat = dict[str, Any]

BILLING = "x-anthropic-billing-header:"
"""How the first system block of Claude Code begins. Its number changes with each request, so a prompt that had it would
never be in the prefix cache."""
_USUAL_EFFORT = "high"
"""In this dialect, leaving the effort out is the same."""
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_FUNCTION = re.compile(r"tools\[(\d+)\]\.function(?:\.parameters)?")
_MESSAGES = re.compile(r"messages\[.*")
"""A message of the chat; the client's has another number, as the results of calls are messages of their own."""
_PARAMS = {
    "stop": "stop_sequences",
    "max_completion_tokens": "max_tokens",
    "response_format.json_schema.schema": "output_config.format.schema",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
}


def chat_of(request: PromptedMessages, card: ModelCard) -> Chat:
    """Return the body of the chat completion for a request; `card` says what the model can."""
    chat: Chat = {"model": request.model, "messages": list(_messages_of(request, card))}
    tools = offered_tools(request)
    if tools:
        chat["tools"] = [_function_of(tool) for tool in tools]
    if card.has_reasoning:
        chat |= _reasoning_of(request)
    if not isinstance(request, MessagesRequest):
        return chat
    chat |= _choice_of(request, has_tools=bool(tools))
    chat |= {
        name: value
        for name, value in (
            ("stream", request.stream),
            ("temperature", request.temperature),
            ("top_p", request.top_p),
            ("top_k", request.top_k or None),
            ("stop", request.stop_sequences or None),
            ("max_completion_tokens", min(request.max_tokens, card.max_model_len)),
        )
        if value is not None
    }
    if request.output_config is not None and request.output_config.format is not None:
        schema = {"name": "output", "schema": request.output_config.format.definition, "strict": False}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def in_words_of_messages(error: BadRequest) -> BadRequest:
    """Return an error about a chat as one about the request."""
    param = _MESSAGES.sub("messages", error.param or "")
    return renamed(error, _FUNCTION.sub(r"tools[\1].input_schema", _PARAMS.get(param, param)) or None)


def offered_tools(request: PromptedMessages) -> list[Tool]:
    """Return the tools that the model sees in the end: a search or the client has shown them, or hides them."""
    shown = {tool.name for tool in request.tools or () if not tool.defer_loading}
    for turn in request.messages:
        for block in () if isinstance(turn.content, str) else turn.content:
            if isinstance(block, ToolResultBlock) and isinstance(block.content, list):
                shown |= {part.tool_name for part in block.content if isinstance(part, ToolReferenceBlock)}
            elif isinstance(block, ToolChangeBlock):
                shown = shown | {block.tool.name} if block.type == "tool_addition" else shown - {block.tool.name}
    return [tool for tool in request.tools or () if tool.name in shown]


def names_of(request: PromptedMessages) -> dict[str, str]:
    """Return the tools' names by those that the model calls, which are shorter where they have to be."""
    return {called_name(None, tool.name): tool.name for tool in request.tools or ()}


def _function_of(tool: Tool) -> Chat:
    name = called_name(None, tool.name)
    function: Chat = {"name": name, "parameters": tool.input_schema, "strict": bool(tool.strict)}
    if tool.description is not None:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _choice_of(request: MessagesRequest, *, has_tools: bool) -> Chat:
    choice = request.tool_choice
    if choice is None or (not has_tools and choice.type in ("auto", "none")):
        return {}
    if not has_tools:
        raise invalid_value(
            "Invalid value for 'tool_choice': there is no tool to call. Send 'tools', not all of them deferred.",
            "tool_choice",
        )
    if choice.type != "tool":
        chosen: Any = _CHOICES[choice.type]
    elif choice.name is None:
        raise BadRequest("Missing required parameter: 'tool_choice.name'.", param="tool_choice.name")
    else:
        chosen = {"type": "function", "function": {"name": called_name(None, choice.name)}}
    return {"tool_choice": chosen, **({"parallel_tool_calls": False} if choice.disable_parallel_tool_use else {})}


def _reasoning_of(request: PromptedMessages) -> Chat:
    effort = request.output_config.effort if request.output_config is not None else None
    if request.thinking is None:
        return {} if effort is None else {"reasoning_effort": effort}
    if request.thinking.type == "disabled":
        return {"reasoning_effort": "none"}
    wanted: Chat = {"reasoning_effort": effort or _USUAL_EFFORT}
    if request.thinking.budget_tokens is not None and isinstance(request, MessagesRequest):
        wanted["thinking_token_budget"] = request.thinking.budget_tokens
    return wanted


def _messages_of(request: PromptedMessages, card: ModelCard) -> Iterator[Chat]:
    system = _joined(request.system)
    if system:
        yield {"role": "system", "content": system}
    for turn in request.messages:
        match turn:
            case SystemTurn():
                yield {"role": "system", "content": _joined(turn.content)}
            case AssistantTurn():
                yield from _assistant(turn)
            case UserTurn():
                yield from _user(turn, card)


def _joined(content: str | Sequence[TextBlock | ToolChangeBlock] | None) -> str:
    """Return texts as one: the same whether a client sends a string or blocks, so that the cache knows it again."""
    texts = [content] if isinstance(content, str) else list(map(_text_of, content or ()))
    return "\n".join(text for text in texts if text and not text.startswith(BILLING))


def _assistant(turn: AssistantTurn) -> Iterator[Chat]:
    """Yield what the model said, in several messages where another service carried out calls in between."""
    if isinstance(turn.content, str):
        yield {"role": "assistant", "content": turn.content}
        return
    results = {block.tool_use_id: block for block in turn.content if isinstance(block, ServerToolResultBlock)}
    own = [block for block in turn.content if isinstance(block, ToolUseBlock)]  # Their results come next.
    blocks: list[Any] = []
    has_said = False
    for block in turn.content:
        if not isinstance(block, ToolUseBlock | ServerToolResultBlock):
            blocks.append(block)
        if isinstance(block, ServerToolUseBlock):
            result = results.get(block.id)
            yield _said(blocks)
            output = NO_OUTPUT if result is None else readable_json(result.content)
            yield {"role": "tool", "tool_call_id": block.id, "content": output}
            blocks, has_said = [], True
    if blocks or own or not has_said:
        yield _said([*blocks, *own])


def _said(blocks: Sequence[Any]) -> Chat:
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    thoughts = [block.thinking for block in blocks if isinstance(block, ThinkingBlock) and block.thinking]
    calls = [_call(block) for block in blocks if isinstance(block, ToolUseBlock | ServerToolUseBlock)]
    message: Chat = {"role": "assistant", "content": "".join(texts) or (None if calls else "")}
    if thoughts:
        message["reasoning"] = "\n".join(thoughts)
    return {**message, "tool_calls": calls} if calls else message


def _call(block: ToolUseBlock | ServerToolUseBlock) -> Chat:
    function = {"name": called_name(None, block.name), "arguments": orjson.dumps(block.input).decode()}
    return {"id": block.id, "type": "function", "function": function}


def _user(turn: UserTurn, card: ModelCard) -> Iterator[Chat]:
    """Yield the results of calls, which belong right after them, and then the rest of the user's message."""
    if isinstance(turn.content, str):
        yield {"role": "user", "content": turn.content}
        return
    for block in turn.content:
        if isinstance(block, ToolResultBlock):
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block, card)}
    rest = [block for block in turn.content if not isinstance(block, ToolResultBlock)]
    if rest:
        yield {"role": "user", "content": _content(rest)}


def _result(block: ToolResultBlock, card: ModelCard) -> str | list[Chat]:
    parts = block.content if isinstance(block.content, list) else []
    if card.has_images and any(isinstance(part, ImageBlock) for part in parts):
        return [*([{"type": "text", "text": CALL_WENT_WRONG}] if block.is_error else ()), *_content(parts)]
    text = block.content if isinstance(block.content, str) else "\n".join(map(_text_of, parts))
    return f"{CALL_WENT_WRONG}\n{text}" if block.is_error and text else text or NO_OUTPUT


def _content(blocks: Iterable[Any]) -> str | list[Chat]:
    parts = [_image(block) if isinstance(block, ImageBlock) else _text_of(block) for block in blocks]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _image(block: ImageBlock) -> Chat:
    url = f"data:{block.source.media_type};base64,{block.source.data}"
    return {"type": "image_url", "image_url": {"url": url}}


def _text_of(block: Any) -> str:
    match block:
        case TextBlock():
            return block.text
        case DocumentBlock():
            return "\n".join(filter(None, (block.title, block.context, block.source.data)))
        case SearchResultBlock():
            return "\n".join((block.title, block.source, *(part.text for part in block.content)))
        case ToolReferenceBlock():
            return f"The tool '{block.tool_name}' can be used now."
        case ToolChangeBlock():
            return f"The tool '{block.tool.name}' can{'' if block.type == 'tool_addition' else 'not'} be used now."
        case _:
            return UNSEEN
