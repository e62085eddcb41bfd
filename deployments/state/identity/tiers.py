"""Tiers: named sets of limits, which are data in the configuration. A tier is added there and nowhere else."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, RootModel, model_validator

from deployments.config import Section

MAX_REQUESTS_PER_MINUTE = 10_000_000
MAX_TOKENS_PER_MINUTE = 1_000_000_000_000

RequestsPerMinute = Annotated[int, Field(ge=1, le=MAX_REQUESTS_PER_MINUTE)]
TokensPerMinute = Annotated[int, Field(ge=1, le=MAX_TOKENS_PER_MINUTE)]
TierName = Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[a-z0-9][a-z0-9_-]*$")]


class TierLimits(Section):
    """What a tier allows.

    One key may use `requests_per_minute` and `tokens_per_minute` in any 60 seconds; None where each key needs limits of
    its own. The unfinished batches of one account may hold `enqueued_tokens` together, whatever its keys use in a
    minute; None for any number.
    """

    requests_per_minute: RequestsPerMinute | None
    tokens_per_minute: TokensPerMinute | None
    enqueued_tokens: Annotated[int, Field(ge=1)] | None


_DEFAULTS = {
    "free": TierLimits(requests_per_minute=10, tokens_per_minute=40_000, enqueued_tokens=5_000_000),
    "standard": TierLimits(requests_per_minute=60, tokens_per_minute=200_000, enqueued_tokens=100_000_000),
    "enterprise": TierLimits(requests_per_minute=None, tokens_per_minute=None, enqueued_tokens=None),
}
_LEAST = TierLimits(requests_per_minute=1, tokens_per_minute=1, enqueued_tokens=1)


class Tiers(RootModel[dict[TierName, TierLimits]]):
    """The tiers by name: free, standard and enterprise, as the configuration changes them, and those that it adds.

    What it leaves out of free, standard or enterprise stays as it is by default; a tier that it adds has all limits.
    """

    model_config = ConfigDict(frozen=True)

    root: dict[TierName, TierLimits] = _DEFAULTS

    @model_validator(mode="before")
    @classmethod
    def _add_to_the_defaults(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {**_DEFAULTS, **{name: _over_default(name, limits) for name, limits in given.items()}}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tiers."""
        return tuple(self.root)

    def of(self, name: str) -> TierLimits:
        """Return the limits of a tier; the least that there can be where it left the configuration."""
        return self.root.get(name, _LEAST)


def _over_default(name: Any, limits: Any) -> Any:
    """Return the limits of a tier as given, with what they leave out of one that is there by default."""
    if not isinstance(limits, Mapping) or name not in _DEFAULTS:
        return limits
    return {**_DEFAULTS[name].model_dump(), **limits}
