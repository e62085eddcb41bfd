"""Tiers: named sets of limits. A tier is added in the configuration, without a change of code."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, RootModel, model_validator

from deployments.config import Section

MAX_REQUESTS_PER_MINUTE = 10_000_000
MAX_TOKENS_PER_MINUTE = 1_000_000_000_000
GIB = 1024 * 1024 * 1024

RequestsPerMinute = Annotated[int, Field(ge=1, le=MAX_REQUESTS_PER_MINUTE)]
TokensPerMinute = Annotated[int, Field(ge=1, le=MAX_TOKENS_PER_MINUTE)]
TierName = Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[a-z0-9][a-z0-9_-]*$")]


def _leave_limits_out(schema: dict[str, Any]) -> None:
    """Require no limit in the schema of a file: free, standard and enterprise have defaults for those left out."""
    schema.pop("required", None)


class TierLimits(Section):
    """The limits of a tier.

    Args:
        requests_per_minute, tokens_per_minute: what each key may use in any 60 seconds. None means that each key needs
            limits of its own.
        enqueued_tokens: what the unfinished batches of an account may hold together, beside the limits of its keys.
            None for any number.
        calls_per_minute: how many calls a key may make to all that is not a model: files, conversations, batches,
            usage, pages of the console. Each ingress replica counts for itself. None for any number.
        file_bytes: what the files and pending uploads of an account may hold together. None for any number.
        item_bytes: what its responses and conversations may hold together. None for any number.
        stored_objects: how many files, pending uploads, vector stores and conversations an account may have. None for
            any number.
        keys: while it has fewer than this, the holders of an account may create keys in the console. Each key has
            limits of its own; a revoked one counts for another minute. None for any number.
        priority: whether requests with `service_tier: priority` go before others; otherwise they are served as usual.
        flex_token_weight: how much each token of a request with `service_tier: flex` counts.
        share: where several accounts want more of a model than there is, each gets tokens in proportion to this.
    """

    model_config = ConfigDict(json_schema_extra=_leave_limits_out)

    requests_per_minute: RequestsPerMinute | None
    tokens_per_minute: TokensPerMinute | None
    enqueued_tokens: Annotated[int, Field(ge=1)] | None
    calls_per_minute: RequestsPerMinute | None = 3_000
    file_bytes: Annotated[int, Field(ge=1024)] | None = 100 * GIB
    item_bytes: Annotated[int, Field(ge=1024)] | None = 10 * GIB
    stored_objects: Annotated[int, Field(ge=1)] | None = 100_000
    keys: Annotated[int, Field(ge=0)] | None = 20
    priority: bool = False
    flex_token_weight: Annotated[float, Field(gt=0, le=1)] = 0.5
    share: Annotated[float, Field(ge=0.001, le=1000)] = 1.0


_FREE: dict[str, Any] = {
    "calls_per_minute": 600,
    "file_bytes": GIB,
    "item_bytes": GIB // 4,
    "stored_objects": 10_000,
    "keys": 1,
}
_UNBOUNDED: dict[str, Any] = dict.fromkeys(_FREE)
_DEFAULTS = {
    "free": TierLimits(requests_per_minute=10, tokens_per_minute=40_000, enqueued_tokens=5_000_000, **_FREE),
    "standard": TierLimits(requests_per_minute=60, tokens_per_minute=200_000, enqueued_tokens=100_000_000),
    "enterprise": TierLimits(requests_per_minute=None, tokens_per_minute=None, enqueued_tokens=None, **_UNBOUNDED),
}
_LEAST = TierLimits(requests_per_minute=1, tokens_per_minute=1, enqueued_tokens=1, **{**_FREE, "calls_per_minute": 60})


class Tiers(RootModel[dict[TierName, TierLimits]]):
    """The tiers by name: free, standard and enterprise, with the configuration's changes, and its own tiers.

    A limit of free, standard or enterprise that is left out keeps its default; a tier of its own names all limits.
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
        """Return the limits of a tier; the lowest limits for a tier that is no longer configured."""
        return self.root.get(name, _LEAST)


def weighted(tokens: int, token_weight: float) -> int:
    """Return the tokens that count against limits: each counts `token_weight` times."""
    return tokens if token_weight == 1.0 else math.ceil(tokens * token_weight)


def _over_default(name: Any, limits: Any) -> Any:
    """Return the given limits, completed from the default tier of the same name, if there is one."""
    if not isinstance(limits, Mapping) or name not in _DEFAULTS:
        return limits
    return {**_DEFAULTS[name].model_dump(), **limits}
