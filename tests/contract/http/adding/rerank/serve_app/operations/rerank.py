"""The operation behind /v1/rerank."""

from collections.abc import Mapping
from typing import Final

from deployments.models.contract.engine import Engine, EngineRequest, ModelDirectory
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.operations.outcome import Cost, Outcome
from serve_app.operations.routing import CacheSalt, find_engine
from serve_app.operations.safety.policy import SafetyPolicy
from serve_app.schemas.base import estimate_tokens
from serve_app.schemas.rerank import Ranking, RerankRequest


class RerankOperation:
    """Put documents in order by a query."""

    name: Final = Operation.RERANK
    schema = RerankRequest
    answer = Ranking
    events = None

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> None:
        self._directory = directory

    def cost(self, body: RerankRequest, principal: Principal) -> Cost:
        """Return what a body may take.

        Raises:
            ApiError: this key may not use the model.
        """
        card = self._engine(body, principal).card
        prompt_tokens = estimate_tokens(body.documents) + len(body.documents) * estimate_tokens([body.query])
        return Cost(card.id, prompt_tokens, completion_tokens=0, max_completion_tokens=0)

    def run(
        self, body: RerankRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0
    ) -> Outcome:
        """Return the answer to a body, not begun yet.

        Raises:
            ApiError: this key may not use the model.
        """
        request = EngineRequest(self.name, request_id, raw, priority=priority)
        return Outcome(self._engine(body, principal).run(request), is_stream=False)

    def _engine(self, body: RerankRequest, principal: Principal) -> Engine:
        return find_engine(self._directory, body.model, self.name, principal)


OPERATION = RerankOperation
