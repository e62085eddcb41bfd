"""The base of chat and completions: an engine generates text, under a safety policy where its model has one."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from deployments.models.contract.engine import (
    Engine,
    EngineRequest,
    EngineStream,
    ModelCard,
    ModelDirectory,
    ServiceTier,
)
from deployments.models.contract.events import Event
from deployments.models.contract.render import Renderer
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.operations.contract import Cost, Outcome
from serve_app.operations.routing import CacheSalt, affinity_of, check_max_tokens, find_engine, unsupported_parameter
from serve_app.operations.safety.policy import SafetyPolicy
from serve_app.operations.safety.stream import SafeStream, Watched
from serve_app.operations.service_tiers import ENGINE_PRIORITY, in_tier
from serve_app.schemas.chat import ChatRequest
from serve_app.schemas.completions import CompletionRequest

Body = TypeVar("Body", ChatRequest, CompletionRequest)


class GenerationOperation(Generic[Body]):
    """An operation whose engine generates text.

    `policies` has safety policies by model id. Under a policy, `_parse` reads events from the engine's pieces, and
    `_whole` or `_chunks` renders those that passed.
    """

    name: Operation
    _id_prefix: ClassVar[str]
    _whole: ClassVar[Callable[..., Renderer]]
    _chunks: ClassVar[Callable[..., Renderer]]
    _parse: ClassVar["staticmethod[[bytes], Sequence[Event]]"]

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> None:
        self._directory = directory
        self._salt = salt
        self._policies = policies or {}

    @classmethod
    def answer_id(cls, request_id: str) -> str:
        """Return the id of the answer to a request."""
        return cls._id_prefix + request_id.removeprefix("req_")

    def cost(self, body: Body, principal: Principal) -> Cost:
        """Return what a body may take. Raises ApiError as `RunnableOperation.cost` does."""
        card = self._engine(body, principal).card
        if card.id in self._policies and (shown := body.shown_tokens_field()) is not None:
            raise unsupported_parameter(shown)  # The policy checks text, not tokens.
        check_max_tokens(body.max_tokens_field, body.max_tokens_bound(), card)
        return cost_of(body, card)

    def run(
        self,
        body: Body,
        raw: bytes,
        principal: Principal,
        *,
        request_id: str,
        priority: int = 0,
        service_tier: ServiceTier = "default",
    ) -> Outcome:
        """Return the answer to a body, not begun yet. Raises ApiError as `RunnableOperation.run` does."""
        engine = self._engine(body, principal)
        request = self._request(
            body, raw, principal, request_id=request_id, priority=priority, service_tier=service_tier
        )
        policy = self._policies.get(engine.card.id)
        if policy is None:
            return Outcome(in_tier(engine.run(request), service_tier), body.is_stream)
        renderer = self._renderer(body, engine.card.id, request)
        stream = self._run_safely(engine, policy, request, body, renderer)
        return Outcome(in_tier(stream, service_tier), body.is_stream)

    def find_engine(self, model: str, principal: Principal) -> Engine:
        """Return the engine of a model that offers the operation. Raises ApiError as the function of that name does."""
        return find_engine(self._directory, model, self.name, principal)

    def _engine(self, body: Body, principal: Principal) -> Engine:
        engine = self.find_engine(body.model, principal)
        if body.thinking_token_budget not in (None, -1) and not engine.card.has_reasoning:
            raise unsupported_parameter("thinking_token_budget")
        return engine

    def _request(
        self,
        body: Body,
        raw: bytes,
        principal: Principal,
        *,
        request_id: str,
        priority: int,
        service_tier: ServiceTier = "default",
    ) -> EngineRequest:
        return EngineRequest(
            operation=self.name,
            request_id=request_id,
            body=body.to_engine_body(raw),
            stream=body.is_stream,
            cache_salt=self._salt(principal, body.cache_salt),
            priority=priority + ENGINE_PRIORITY[service_tier] + (body.priority or 0),
            affinity=affinity_of(principal.account, body.affinity_prefix()),
            service_tier=service_tier,
        )

    def _run_safely(
        self, engine: Engine, policy: SafetyPolicy, request: EngineRequest, body: Body, renderer: Renderer
    ) -> EngineStream:
        watched = Watched(
            request=request,
            prompt_text="\n".join(body.prompt_texts()),
            num_choices=body.num_choices,
            parse=self._parse,
            renderer=renderer,
        )
        return SafeStream(engine, policy, watched)

    def _renderer(self, body: Body, model: str, request: EngineRequest) -> Renderer:
        head: tuple[Any, ...] = self.answer_id(request.request_id), model, int(time.time())
        tier: dict[str, Any] = {} if request.service_tier == "default" else {"service_tier": request.service_tier}
        if request.render == "functions":
            tier["has_functions"] = True
        if not body.is_stream:
            return self._whole(*head, **tier)
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return self._chunks(*head, include_usage=include_usage, **tier)


def cost_of(body: ChatRequest | CompletionRequest, card: ModelCard) -> Cost:
    """Return what a body may take."""
    num_prompts = body.num_choices // (body.n or 1)
    sent_tokens = body.prompt_estimate_tokens()
    cut_tokens = body.count_cut(sent_tokens, num_prompts, card.max_model_len)
    prompt_tokens = sent_tokens - cut_tokens
    bound = body.max_tokens_bound()
    return Cost(
        model=card.id,
        prompt_tokens=prompt_tokens,
        completion_tokens=None if bound is None else bound * body.num_choices,
        max_completion_tokens=max(1, card.max_model_len - prompt_tokens) * body.num_choices,
        cut_tokens=cut_tokens,
    )
