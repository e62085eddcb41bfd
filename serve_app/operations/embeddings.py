"""The operation behind /v1/embeddings; vector stores ask it too, by `vector_stores.embedder`."""

from collections.abc import Mapping
from typing import Final

from deployments.models.contract.engine import Engine, EngineRequest, ModelCard, ModelDirectory
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.errors.api import BadRequest
from serve_app.operations.outcome import Cost, Outcome
from serve_app.operations.routing import CacheSalt, find_engine, salt_of, unsupported_parameter
from serve_app.operations.safety.policy import SafetyPolicy
from serve_app.schemas.embeddings import EmbeddingList, EmbeddingRequest
from serve_app.schemas.prompts import count_inputs


class EmbeddingOperation:
    """Create an embedding of every input.

    `policies` are not read: they are for texts that models write.
    """

    name: Final = Operation.EMBEDDINGS
    schema = EmbeddingRequest
    answer = EmbeddingList
    events = None

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> None:
        self._directory = directory
        self._salt = salt

    def cost(self, body: EmbeddingRequest, principal: Principal) -> Cost:
        """Return what a body may take.

        Raises:
            ApiError: this key may not use the model, or the model cannot cut its vectors to the size asked for.
        """
        card = self._engine(body, principal).card
        # What is longer than the model's context is cut, so it costs no more than that.
        num_inputs = count_inputs(body.input)
        prompt_tokens = min(body.prompt_estimate_tokens(), num_inputs * card.max_model_len)
        prompt_tokens = body.bound_prompt(prompt_tokens, num_inputs, card.max_model_len)
        return Cost(card.id, prompt_tokens, completion_tokens=0, max_completion_tokens=0)

    def run(
        self, body: EmbeddingRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0
    ) -> Outcome:
        """Return the answer to a body, not begun yet; `raw` are the bytes that the body was parsed from.

        Raises:
            ApiError: this key may not use the model, or the model cannot cut its vectors to the size asked for.
        """
        request = EngineRequest(
            operation=self.name,
            request_id=request_id,
            body=body.to_engine_body(raw),
            cache_salt=salt_of(self._salt(principal.account), body.cache_salt),
            priority=priority,
        )
        return Outcome(self._engine(body, principal).run(request), is_stream=False)

    def _engine(self, body: EmbeddingRequest, principal: Principal) -> Engine:
        engine = find_engine(self._directory, body.model, self.name, principal)
        _check_dimensions(body.dimensions, engine.card)
        return engine


OPERATION = EmbeddingOperation


def _check_dimensions(dimensions: int | None, card: ModelCard) -> None:
    if dimensions is None:
        return
    if card.dimensions is None:
        raise unsupported_parameter("dimensions")
    if dimensions not in card.dimensions:
        offered = ", ".join(str(size) for size in card.dimensions)
        raise BadRequest(
            f"Invalid value for 'dimensions': this model does not offer {dimensions}. Supported values are: {offered}.",
            param="dimensions",
            code="unsupported_value",
        )
