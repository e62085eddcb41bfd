"""Who is asking: the value that a key stands for, and its row in work that outlives the request."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Retention = Literal["strict", "ephemeral", "stored"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking, as established by an API key.

    `operations` and `models` are the key's scopes, None where the key may use all; entries of `models` are
    ids or shell-style patterns. `expires_at` is in Unix seconds. `organization` is the account's public name.
    """

    key_id: str
    account: str
    organization: str
    tier: str
    requests_per_minute: int
    tokens_per_minute: int
    operations: frozenset[str] | None = None
    models: tuple[str, ...] | None = None
    retention: Retention = "ephemeral"
    expires_at: float | None = None
    is_admin: bool = False


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
