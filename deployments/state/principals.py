"""Principals in work that outlives the request which asked for it: as JSON in a row, and back."""

from collections.abc import Mapping
from typing import Any

from deployments.state.protocol import Principal


def principal_to_row(principal: Principal) -> dict[str, Any]:
    """Return a principal as JSON."""
    return {
        "key_id": principal.key_id,
        "account": principal.account,
        "organization": principal.organization,
        "tier": principal.tier,
        "requests_per_minute": principal.requests_per_minute,
        "tokens_per_minute": principal.tokens_per_minute,
        "operations": None if principal.operations is None else sorted(principal.operations),
        "models": None if principal.models is None else list(principal.models),
        "retention": principal.retention,
        "expires_at": principal.expires_at,
        "is_admin": principal.is_admin,
    }


def principal_of(row: Mapping[str, Any]) -> Principal:
    """Return the principal that `principal_to_row` wrote down."""
    values = dict(row)
    values["operations"] = None if row["operations"] is None else frozenset(row["operations"])
    values["models"] = None if row["models"] is None else tuple(row["models"])
    return Principal(**values)
