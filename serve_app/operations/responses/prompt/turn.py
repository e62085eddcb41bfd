"""A response that can be run, as a value: `preparation` makes it, `run` runs it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.models.contract.engine import Engine, ServiceTier
from deployments.state.identity.principal import Principal
from serve_app.operations.responses.events.writer import Item
from serve_app.operations.responses.prompt.history import Message, ServerRun
from serve_app.operations.responses.tools.tool_set import ToolSet
from serve_app.schemas.responses.request import ResponseRequest


@dataclass(frozen=True, slots=True)
class PastConversation:
    """The conversation that a response continues."""

    items: list[Item] = field(default_factory=list)
    runs: dict[str, ServerRun] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """A response that can be run: everything has been read and checked.

    `response` is the object as it begins, `input` the request's own items in stored form, `messages` the whole
    conversation. `expires_at` is when the stored response is deleted, None when it is not stored. `tools` are those of
    the service that the model may call. `seal_reasoning` makes the token of a thought, for clients that keep the
    conversation themselves. Without `is_generated` no model is asked: the turn only prepares a later one.
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

    @property
    def is_stored(self) -> bool:
        """Whether something of it is kept: the response, or its items in a conversation."""
        return self.expires_at is not None or self.conversation_id is not None

    @property
    def conversation_id(self) -> str | None:
        """The conversation that the items join, once the response is finished."""
        return self.request.conversation_id
