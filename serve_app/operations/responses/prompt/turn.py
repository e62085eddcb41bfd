"""A response that can be run, as a value, and the object that clients get of it. `preparation` makes them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deployments.models.contract.engine import Engine, ServiceTier
from deployments.state.identity.principal import Principal
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.compaction import Compaction
from serve_app.operations.responses.prompt.history import Message, ServerRun
from serve_app.operations.responses.tools.tool_set import ToolSet
from serve_app.operations.responses.tools.wire import tool_to_wire
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.schemas.responses.text import JsonSchemaFormat, TextConfig


@dataclass(frozen=True, slots=True)
class PastConversation:
    """The conversation that a response continues."""

    items: list[Item] = field(default_factory=list)
    runs: dict[str, ServerRun] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """A response that can be run: everything has been read and checked.

    `response` is the object as it begins, `input` the request's own items in stored form, `messages` the whole
    conversation. `expires_at` is when the stored response is deleted, None if it is not stored. `tools` are those of
    the service. `seal_reasoning` seals reasoning for clients that keep the conversation themselves. Without
    `is_generated` no model is asked: the turn only prepares a later one. `compaction` says when the conversation is
    compacted first.
    """

    request: ResponseRequest
    response: Item
    input: list[Item]
    messages: list[Message]
    engine: Engine
    principal: Principal
    request_id: str
    expires_at: float | None
    is_stream: bool
    seal_reasoning: Callable[[str], str] | None = None
    priority: int = 0
    service_tier: ServiceTier = "default"
    before: PastConversation = field(default_factory=PastConversation)
    tools: ToolSet = field(default_factory=ToolSet)
    is_generated: bool = True
    compaction: Compaction | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation that gets the items once the response is finished."""
        return self.request.conversation_id


def create_response(request: ResponseRequest, response_id: str, model: str, created_at: int, *, stored: bool) -> Item:
    """Return the object of a response that has not begun: every key, null where nothing is known yet."""
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
        "reasoning": {
            "effort": request.reasoning.effort if request.reasoning is not None else None,
            "summary": request.reasoning_summary,
        },
        "safety_identifier": request.safety_identifier,
        "service_tier": "default",
        "store": stored,
        "temperature": _or(request.temperature, 1.0),
        "text": _text_to_wire(request.text),
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


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _text_to_wire(text: TextConfig | None) -> Item:
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


def _choice_to_wire(request: ResponseRequest) -> Any:
    choice = request.tool_choice
    return (choice or "auto") if choice is None or isinstance(choice, str) else choice.model_dump()
