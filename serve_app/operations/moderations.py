"""The operation behind /v1/moderations. It runs here; only a guard model needs an engine."""

from typing import Any, ClassVar

from deployments.models.contract.engine import EngineRequest
from deployments.operations import Operation
from deployments.state.identity.principal import Principal
from serve_app.errors.api import ModelNotFound, NotFound
from serve_app.operations.contract import Cost, Outcome
from serve_app.operations.routing import CacheSalt
from serve_app.operations.safety.moderation import ModerationStream, Moderator
from serve_app.operations.scopes import may_use_model
from serve_app.schemas.base import OperationRequest
from serve_app.schemas.moderations import ModerationRequest


class ModerationOperation:
    """Find categories of harm in a text."""

    name: ClassVar[Operation] = Operation.MODERATIONS
    schema: ClassVar[type[OperationRequest]] = ModerationRequest
    answer: ClassVar[Any] = "openai.types.ModerationCreateResponse"
    events: ClassVar[Any] = None

    def __init__(self, moderator: Moderator | None, salt: CacheSalt) -> None:
        self._moderator = moderator
        self._salt = salt

    def cost(self, body: ModerationRequest, principal: Principal) -> Cost:
        """Return the tokens of the guard model. Raises ApiError if moderations are off, or not for this key."""
        moderator = self._find(body, principal)
        num_read, num_written = moderator.guard_tokens(body.texts())
        return Cost(moderator.config.id, num_read, completion_tokens=num_written, max_completion_tokens=num_written)

    def run(
        self, body: ModerationRequest, raw: bytes, principal: Principal, *, request_id: str, priority: int = 0
    ) -> Outcome:
        """Return the answer to a body, not begun yet. Raises ApiError as `cost` does."""
        request = EngineRequest(self.name, request_id, raw, cache_salt=self._salt(principal, None), priority=priority)
        stream = ModerationStream(self._find(body, principal), body.texts(), request)
        return Outcome(stream, is_stream=False)

    def _find(self, body: ModerationRequest, principal: Principal) -> Moderator:
        if self._moderator is None:
            raise NotFound("Moderations are not switched on in this service. Ask the operator.")
        config = self._moderator.config
        may_use = may_use_model(principal, config.id)
        if body.model not in (None, config.id, *config.aliases) or not may_use:
            raise ModelNotFound(body.model or config.id, config.id if may_use else None)
        return self._moderator
