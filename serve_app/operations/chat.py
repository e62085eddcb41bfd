"""The operation behind /v1/chat/completions. Responses are built from its events (`run_as_events`)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from deployments.models.contract.engine import (
    Engine,
    EngineRequest,
    EngineStream,
    ModelCard,
    ModelDirectory,
    ServiceTier,
)
from deployments.models.contract.render import ChatBody, ChatChunks, EventLines, Renderer, parse_events
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.operations.contract import Outcome
from serve_app.operations.generation import GenerationOperation
from serve_app.operations.routing import CacheSalt, check_images, unsupported_parameter
from serve_app.operations.safety.policy import SafetyPolicy, check_moderation
from serve_app.operations.service_tiers import in_tier
from serve_app.schemas.chat import ChatRequest

KeepChat = Callable[[EngineStream, ChatRequest, bytes, Principal, str, str | None], EngineStream]
"""Returns a stream that is kept, from the answer to a body, its bytes, who asked, and the request's id."""


class ChatOperation(GenerationOperation[ChatRequest]):
    """Create a chat completion.

    With `stream`, the answer comes as server-sent events while the model writes it.
    """

    name = Operation.CHAT
    schema = ChatRequest
    answer = "openai.types.chat.ChatCompletion"
    events = "openai.types.chat.ChatCompletionChunk"
    _id_prefix = "chatcmpl-"
    _whole = ChatBody
    _chunks = ChatChunks
    _parse = staticmethod(parse_events)

    def __init__(
        self,
        directory: ModelDirectory,
        salt: CacheSalt,
        policies: Mapping[str, SafetyPolicy] | None = None,
        keep: KeepChat | None = None,
    ) -> None:
        super().__init__(directory, salt, policies)
        self._keep = keep

    def run(self, body: ChatRequest, raw: bytes, principal: Principal, *, request_id: str, **options: Any) -> Outcome:
        """Return the answer to a body, kept where that is wanted; nothing has begun. Raises as the base class does."""
        outcome = super().run(body, raw, principal, request_id=request_id, **options)
        if self._keep is None:
            return outcome
        return replace(outcome, stream=self._keep(outcome.stream, body, raw, principal, request_id, None))

    def run_whole_as_events(
        self, engine: Engine, body: ChatRequest, raw: bytes, principal: Principal, *, request_id: str
    ) -> EngineStream:
        """Return an answer as `run_as_events` does; it is a chat of its own, kept as that of `run`."""
        stream = self.run_as_events(engine, body, raw, principal, request_id=request_id)
        if self._keep is None:
            return stream
        return self._keep(stream, body, raw, principal, request_id, engine.card.id)

    def run_as_events(
        self,
        engine: Engine,
        body: ChatRequest,
        raw: bytes,
        principal: Principal,
        *,
        request_id: str,
        priority: int = 0,
        service_tier: ServiceTier = "default",
    ) -> EngineStream:
        """Return an answer whose pieces are for `parse_events`, for another operation to build upon."""
        self.check_moderation(body, engine.card)
        request = self._request(
            body, raw, principal, request_id=request_id, priority=priority, service_tier=service_tier
        )
        policy = self._policies.get(engine.card.id)
        if policy is None:
            return in_tier(engine.run(replace(request, render="events")), service_tier)
        return in_tier(self._run_safely(engine, policy, request, body, EventLines()), service_tier)

    def _request(self, body: ChatRequest, *args: Any, **options: Any) -> EngineRequest:
        request = super()._request(body, *args, **options)
        return request if body.functions is None else replace(request, render="functions")

    def _engine(self, body: ChatRequest, principal: Principal) -> Engine:
        engine = super()._engine(body, principal)
        check_features(body, engine.card)
        self.check_moderation(body, engine.card)
        return engine

    def check_moderation(self, body: ChatRequest, card: ModelCard) -> None:
        """Raise BadRequest if the body asks for moderation that its model's safety policy does not do."""
        check_moderation(body.moderation, self._policies.get(card.id))

    def _run_safely(
        self, engine: Engine, policy: SafetyPolicy, request: EngineRequest, body: ChatRequest, renderer: Renderer
    ) -> EngineStream:
        return super()._run_safely(engine, policy, replace(request, render="events"), body, renderer)


OPERATION = ChatOperation


def check_features(body: ChatRequest, card: ModelCard, param: str = "messages") -> None:
    """Raise BadRequest, which may name `param`, if the body needs tools or images and the model supports neither."""
    if body.has_tools and not card.has_tools:
        raise unsupported_parameter("tools" if body.tools else "functions")
    check_images(body.has_images, card, param)
