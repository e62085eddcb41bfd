"""The base of operations whose engine answers in one piece: embeddings, scores, tokens."""

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar

from deployments.models.contract.engine import Engine, EngineRequest, ModelCard, ModelDirectory
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.operations.contract import Cost, Outcome
from serve_app.operations.routing import CacheSalt, find_engine
from serve_app.operations.safety.policy import SafetyPolicy


class WholeRequest(Protocol):
    """A body that names a model and can be rewritten for the engine."""

    @property
    def model(self) -> str:
        """The model's id or alias."""

    def to_engine_body(self, raw: bytes) -> bytes:
        """Return the body in the engine's dialect; `raw` are the bytes that this was parsed from."""


Body = TypeVar("Body", bound=WholeRequest)


class WholeOperation(Generic[Body]):
    """An operation whose engine answers in one piece; `policies` do not apply, as it generates no text."""

    name: Operation
    events: Final = None

    def __init__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> None:
        self._directory = directory
        self._salt = salt

    def cost(self, body: Body, principal: Principal) -> Cost:
        """Return what a body may take. Raises ApiError as `RunnableOperation.cost` does."""
        card = self._engine(body, principal).card
        prompt_tokens = self._prompt_tokens(body, card)
        cut_tokens = self._cut_tokens(body, card, prompt_tokens)
        return Cost(card.id, prompt_tokens - cut_tokens, 0, 0, cut_tokens)

    def run(self, body: Body, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0) -> Outcome:
        """Return the answer to a body, not begun yet. Raises ApiError as `RunnableOperation.run` does."""
        request = EngineRequest(
            operation=self.name,
            request_id=request_id,
            body=body.to_engine_body(raw),
            cache_salt=self._salt(principal, getattr(body, "cache_salt", None)),
            priority=priority,
        )
        return Outcome(self._engine(body, principal).run(request), is_stream=False)

    def _engine(self, body: Body, principal: Principal) -> Engine:
        engine = find_engine(self._directory, body.model, self.name, principal)
        self._check(body, engine.card)
        return engine

    def _check(self, body: Body, card: ModelCard) -> None:
        """Raise BadRequest if the model does not support the request."""

    def _prompt_tokens(self, body: Body, card: ModelCard) -> int:
        """Return about how many tokens a body may take, 0 if no model reads it."""
        return 0

    def _cut_tokens(self, body: Body, card: ModelCard, prompt_tokens: int) -> int:
        """Return how many of them are cut off before the model."""
        return 0
