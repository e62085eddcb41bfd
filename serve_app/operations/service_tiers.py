"""Service tiers: what a request asks for with `service_tier`, what its key gets, and how a flex request is refused.

`flex` runs after other requests but before the lines of batches, is refused instead of waiting for a place, and counts
for less. `priority`, also called `fast` or `ultrafast`, runs before other requests; keys whose tier lacks it are served
as `default`. Answers name the tier that was served.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

from deployments.models.contract.engine import EngineStream, ServiceTier
from deployments.models.contract.errors import Overloaded
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from serve_app.errors.capacity import ResourceUnavailable
from serve_app.operations.contract import GeneratedStream
from serve_app.schemas.base import OperationRequest

ENGINE_PRIORITY: Final[Mapping[ServiceTier, int]] = {"priority": -1, "default": 0, "flex": 1}
"""vLLM's priorities, lower first; lines of batches have 10 by default."""


class Terms(NamedTuple):
    """How a request is served; each of its tokens counts `token_weight` times against the key's limits."""

    tier: ServiceTier = "default"
    token_weight: float = 1.0

    @property
    def options(self) -> Mapping[str, Any]:
        """The arguments for `run` and `begin` of an operation whose body can name a tier."""
        return {} if self.tier == "default" else {"service_tier": self.tier}


DEFAULT_TERMS: Final = Terms()


def find_terms(body: OperationRequest, principal: Principal, tiers: Tiers) -> Terms:
    """Return how the request is served."""
    asked = getattr(body, "service_tier", None)
    if asked is None:  # As in most requests.
        return DEFAULT_TERMS
    if asked == "flex":
        return Terms("flex", tiers.of(principal.tier).flex_token_weight)
    if asked in ("priority", "fast", "ultrafast") and tiers.of(principal.tier).priority:
        return Terms("priority")
    return DEFAULT_TERMS


def in_tier(stream: EngineStream, tier: ServiceTier) -> EngineStream:
    """Return the answer of a service tier."""
    return FlexStream(stream) if tier == "flex" else stream


class FlexStream(GeneratedStream):
    """The answer to a flex request, which raises ResourceUnavailable where there is no place for it."""

    def __init__(self, stream: EngineStream) -> None:
        super().__init__()
        self.summary = stream.summary
        self._stream = stream

    async def _generate(self) -> AsyncGenerator[bytes]:
        try:
            async for piece in self._stream:
                yield piece
        except Overloaded as error:
            raise ResourceUnavailable(error.retry_after_s) from None
        finally:
            self.summary = self._stream.summary

    async def aclose(self) -> None:
        """Abort the generation if it still runs."""
        await super().aclose()
        await self._stream.aclose()
        self.summary = self._stream.summary
