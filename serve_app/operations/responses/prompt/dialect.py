"""Between a response and the chat that makes its text: the body of a generation, and the names in its refusals.

`run` calls it before each generation, and when one is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from deployments.models.contract.errors import ContextLengthExceeded, EngineError, RequestRejected
from serve_app.errors.api import BadRequest
from serve_app.operations.chat import check_features
from serve_app.operations.responses.prompt.history import Message
from serve_app.operations.responses.prompt.turn import Turn
from serve_app.operations.responses.prompt.wire import create_chat
from serve_app.operations.responses.tools.tool_set import OfferedFunction
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.responses.request import PromptedRequest
from serve_app.schemas.responses.tools import AllowedTools, FunctionTool
from serve_app.validation.violations import translate_violation

_FUNCTION = re.compile(r"tools\[(\d+)\]\.function(.*)")
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
    """The chat that one generation asks for, checked, and its bytes."""

    body: ChatRequest
    raw: bytes


def create_chat_request(
    turn: Turn, messages: list[Message], offered: Sequence[OfferedFunction], *, may_force: bool = True
) -> GenerationChat:
    """Return the chat that one generation asks for.

    `offered` are the functions that the service runs. Without `may_force` the model need not call any.

    Raises:
        BadRequest: the model cannot do what it asks.
    """
    chat = create_chat(turn.request, messages, offered, may_force=may_force)
    chat["stream"] = turn.is_stream
    body = check_chat(chat, turn.request)
    check_features(body, turn.engine.card, param="input")
    return GenerationChat(body, orjson.dumps(chat))


def check_chat(chat: dict[str, Any], request: PromptedRequest | None) -> ChatRequest:
    """Return a chat that was made for a request, checked; None is one without tools.

    Raises:
        BadRequest: it is not valid; the error names the field of the request.
    """
    try:
        return ChatRequest.model_validate(chat)
    except ValidationError as error:
        violation = translate_violation(error, chat)
        raise in_words_of(request, violation.message, violation.param, violation.code) from None


def in_words_of(request: PromptedRequest | None, message: str, param: str | None, code: str | None) -> BadRequest:
    """Return a refusal of a chat as one of the request that it was made for."""
    own = param_of(param, request)
    return BadRequest(message.replace(f"'{param}'", f"'{own}'"), param=own, code=code)


def translated(error: EngineError, request: PromptedRequest) -> EngineError:
    """Return a refusal of what a request asks for in the words of this interface; any other failure as it is."""
    if isinstance(error, ContextLengthExceeded):
        return ContextLengthExceeded("input", error.limit, error.num_tokens, error.is_lower_bound)
    if not isinstance(error, RequestRejected):
        return error
    own = in_words_of(request, error.message, error.param, error.code)
    return RequestRejected(own.message, param=own.param, code=own.code)


def param_of(param: str | None, request: PromptedRequest | None = None) -> str | None:
    """Return the name that a field of a chat has in the request for a response that it was made for."""
    if param is None:
        return None
    if param.startswith("messages"):
        return "input"
    if found := _FUNCTION.match(param):
        positions = _functions_of(request) if request is not None else range(int(found[1]) + 1)
        position = int(found[1])
        # Those that follow are functions of the service's own tools.
        return f"tools[{positions[position]}]{found[2]}" if position < len(positions) else "tools"
    return _PARAMS.get(param, param)


def _functions_of(request: PromptedRequest) -> list[int]:
    """Return the positions of the tools that are the first of a chat: the client's functions that may be called."""
    choice = request.tool_choice
    allowed = choice.functions if isinstance(choice, AllowedTools) else None
    return [
        index
        for index, tool in enumerate(request.tools or ())
        if isinstance(tool, FunctionTool) and (allowed is None or tool.name in allowed)
    ]
