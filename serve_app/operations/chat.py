"""The operation behind /v1/chat/completions."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from deployments.models.contract.engine import Engine, EngineRequest, EngineStream, ModelCard, ModelDirectory
from deployments.models.contract.render import ChatBody, ChatChunks, EventLines, Renderer, parse_events
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest
from serve_app.operations.outcome import Cost, Outcome
from serve_app.operations.routing import CacheSalt, affinity_of, find_engine, unsupported_parameter
from serve_app.operations.safety.policy import SafetyPolicy
from serve_app.operations.safety.stream import SafeStream, Watched
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.messages import texts_of


class ChatOperation:
    """Create a chat completion, streamed as server-sent events when the body asks for it.

    `policies` holds the safety policy of each model that has one, by model id.
    """

    name: Final = Operation.CHAT
    schema = ChatRequest
    answer = "openai.types.chat.ChatCompletion"
    events = "openai.types.chat.ChatCompletionChunk"

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> None:
        self._directory = directory
        self._salt = salt
        self._policies = policies or {}

    def cost(self, body: ChatRequest, principal: Principal) -> Cost:
        """Return what a body may take.

        Raises:
            ApiError: this key may not use the model, or the model cannot do what the body asks.
        """
        return cost_of(body, self._engine(body, principal).card)

    def run(
        self, body: ChatRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0
    ) -> Outcome:
        """Return the answer to a body, not begun yet; `raw` are the bytes that the body was parsed from.

        Raises:
            ApiError: this key may not use the model, or the model cannot do what the body asks.
        """
        engine = self._engine(body, principal)
        request = self._request(body, raw, principal, request_id=request_id, priority=priority)
        policy = self._policies.get(engine.card.id)
        stream = engine.run(request) if policy is None else _run_safely(engine, request, body, policy)
        return Outcome(stream, body.is_stream)

    def run_as_events(
        self,
        engine: Engine,
        body: ChatRequest,
        raw: bytes,
        principal: Principal,
        *,
        request_id: str,
        priority: int = 0,
    ) -> EngineStream:
        """Return an answer for an operation that makes something else of it: its pieces are for `parse_events`."""
        request = self._request(body, raw, principal, request_id=request_id, priority=priority)
        request = replace(request, render="events")
        policy = self._policies.get(engine.card.id)
        if policy is None:
            return engine.run(request)
        return SafeStream(engine, policy, _watched(request, body, EventLines()))

    def _engine(self, body: ChatRequest, principal: Principal) -> Engine:
        engine = find_engine(self._directory, body.model, self.name, principal)
        check_features(body, engine.card)
        return engine

    def _request(
        self, body: ChatRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int
    ) -> EngineRequest:
        return EngineRequest(
            operation=self.name,
            request_id=request_id,
            body=body.to_engine_body(raw),
            stream=body.is_stream,
            cache_salt=self._salt(principal.account),
            priority=priority,
            affinity=affinity_of(principal.account, body.affinity_prefix()),
        )


OPERATION = ChatOperation


def check_features(body: ChatRequest, card: ModelCard, param: str = "messages") -> None:
    """Check that the model can do what the body asks; `param` is where the caller put the messages.

    Raises:
        BadRequest: it cannot call tools, or cannot see.
    """
    if body.has_tools and not card.has_tools:
        raise unsupported_parameter("tools" if body.tools else "functions")
    if body.has_images and not card.has_images:
        raise BadRequest(
            "Invalid content type. image_url is not supported with this model.", param=param, code="invalid_value"
        )


def _run_safely(engine: Engine, request: EngineRequest, body: ChatRequest, policy: SafetyPolicy) -> EngineStream:
    completion_id = "chatcmpl-" + request.request_id.removeprefix("req_")
    created = int(time.time())
    renderer: Renderer = ChatBody(completion_id, engine.card.id, created)
    if body.is_stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        renderer = ChatChunks(completion_id, engine.card.id, created, include_usage=include_usage)
    return SafeStream(engine, policy, _watched(replace(request, render="events"), body, renderer))


def _watched(request: EngineRequest, body: ChatRequest, renderer: Renderer) -> Watched:
    return Watched(
        request=request,
        prompt_text="\n".join(text for message in body.messages for text in texts_of(message)),
        num_choices=body.num_choices,
        parse=parse_events,
        renderer=renderer,
    )


def cost_of(body: ChatRequest, card: ModelCard) -> Cost:
    """Return what a body may take."""
    prompt_tokens = body.prompt_estimate_tokens()
    bound = body.max_tokens_bound()
    return Cost(
        model=card.id,
        prompt_tokens=prompt_tokens,
        completion_tokens=None if bound is None else bound * body.num_choices,
        max_completion_tokens=max(1, card.max_model_len - prompt_tokens) * body.num_choices,
    )
