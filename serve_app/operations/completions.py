"""The operation behind /v1/completions, the older interface that continues a plain text."""

import time
from collections.abc import Mapping
from typing import Final

from deployments.models.contract.engine import Engine, EngineRequest, EngineStream, ModelDirectory
from deployments.models.contract.render import Renderer
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.operations.completion_pieces import CompletionBody, CompletionChunks, parse_piece
from serve_app.operations.outcome import Cost, Outcome
from serve_app.operations.routing import CacheSalt, affinity_of, find_engine
from serve_app.operations.safety.policy import SafetyPolicy
from serve_app.operations.safety.stream import SafeStream, Watched
from serve_app.schemas.completions import CompletionChunk, CompletionRequest


class CompletionOperation:
    """Create a completion of plain text, streamed as server-sent events when the body asks for it.

    `policies` holds the safety policy of each model that has one, by model id.
    """

    name: Final = Operation.COMPLETIONS
    schema = CompletionRequest
    answer = "openai.types.Completion"
    events = CompletionChunk

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> None:
        self._directory = directory
        self._salt = salt
        self._policies = policies or {}

    def cost(self, body: CompletionRequest, principal: Principal) -> Cost:
        """Return what a body may take.

        Raises:
            ApiError: this key may not use the model.
        """
        card = find_engine(self._directory, body.model, self.name, principal).card
        prompt_tokens = body.prompt_estimate_tokens()
        bound = body.max_tokens_bound()
        return Cost(
            model=card.id,
            prompt_tokens=prompt_tokens,
            completion_tokens=None if bound is None else bound * body.num_choices,
            max_completion_tokens=max(1, card.max_model_len - prompt_tokens) * body.num_choices,
        )

    def run(
        self, body: CompletionRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0
    ) -> Outcome:
        """Return the answer to a body, not begun yet; `raw` are the bytes that the body was parsed from.

        Raises:
            ApiError: this key may not use the model.
        """
        engine = find_engine(self._directory, body.model, self.name, principal)
        request = EngineRequest(
            operation=self.name,
            request_id=request_id,
            body=body.to_engine_body(raw),
            stream=body.is_stream,
            cache_salt=self._salt(principal.account),
            priority=priority,
            affinity=affinity_of(principal.account, body.affinity_prefix()),
        )
        policy = self._policies.get(engine.card.id)
        stream = engine.run(request) if policy is None else _run_safely(engine, request, body, policy)
        return Outcome(stream, body.is_stream)


OPERATION = CompletionOperation


def _run_safely(engine: Engine, request: EngineRequest, body: CompletionRequest, policy: SafetyPolicy) -> EngineStream:
    completion_id = "cmpl-" + request.request_id.removeprefix("req_")
    created = int(time.time())
    renderer: Renderer = CompletionBody(completion_id, engine.card.id, created)
    if body.is_stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        renderer = CompletionChunks(completion_id, engine.card.id, created, include_usage=include_usage)
    watched = Watched(
        request=request,
        prompt_text="\n".join(body.prompt_texts()),
        num_choices=body.num_choices,
        parse=parse_piece,
        renderer=renderer,
    )
    return SafeStream(engine, policy, watched)
