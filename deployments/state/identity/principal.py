"""The principal: the holder of an API key, and its row in work that outlives the request."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Retention = Literal["strict", "ephemeral", "stored", "logged"]
RETENTIONS: tuple[Retention, ...] = get_args(Retention)
"""The retention policies. Each keeps more than the one before, or for longer."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of an API key, with its limits.

    `operations` and `models` are the key's scopes, None if it may use all; entries of `models` are ids or shell-style
    patterns. `regions` are the regions that may serve the key, None for all. `expires_at` is in Unix seconds.
    `organization` is the account's public name.
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

    @property
    def logs_chats(self) -> bool:
        """Whether chat completions are stored although their requests do not say so."""
        return self.retention == "logged"

    def may_run_in(self, region: str) -> bool:
        """Return whether a region may serve the holder; its name is empty if there is only one."""
        return not region or self.regions is None or region in self.regions


def is_long(retention: Retention) -> bool:
    """Return whether a retention policy keeps content for weeks."""
    return retention in ("stored", "logged")


def principal_to_row(principal: Principal) -> dict[str, Any]:
    """Return a principal as JSON, the same for equal principals."""
    return asdict(principal) | {"operations": None if principal.operations is None else sorted(principal.operations)}


def principal_of(row: dict[str, Any]) -> Principal:
    """Return the principal that `principal_to_row` wrote."""
    kinds = {"operations": frozenset, "models": tuple, "regions": tuple}
    return Principal(**row | {name: kind(row[name]) for name, kind in kinds.items() if row.get(name) is not None})
