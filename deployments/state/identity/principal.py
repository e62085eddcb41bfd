"""The principal: the holder of an API key, and its row in work that outlives the request."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Retention = Literal["strict", "ephemeral", "stored"]


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an API key, with the limits that hold for it.

    `operations` and `models` are the key's scopes, None where the key may use all; entries of `models` are
    ids or shell-style patterns. `regions` are those that the key is bound to, None for all. `expires_at` is in Unix
    seconds. `organization` is the account's public name.
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
    regions: tuple[str, ...] | None = None

    def may_run_in(self, region: str) -> bool:
        """Return whether a region may serve the holder; its name is empty where there is only one."""
        return not region or self.regions is None or region in self.regions


def principal_to_row(principal: Principal) -> dict[str, Any]:
    """Return a principal as JSON."""
    scopes = {
        "operations": None if principal.operations is None else sorted(principal.operations),
        "models": None if principal.models is None else list(principal.models),
        "regions": None if principal.regions is None else list(principal.regions),
    }
    return asdict(principal) | scopes


def principal_of(row: Mapping[str, Any]) -> Principal:
    """Return the principal that `principal_to_row` wrote."""
    values = dict(row)
    values["operations"] = None if row["operations"] is None else frozenset(row["operations"])
    values["models"] = None if row["models"] is None else tuple(row["models"])
    values["regions"] = None if row.get("regions") is None else tuple(row["regions"])
    return Principal(**values)
