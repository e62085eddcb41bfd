"""Who may ask how much: the values and the contract between the ingress and the gatekeeper.

A refusal is a value, never an exception. Kept by `deployments.state.client` (leases from the gatekeeper
actor) and by the in-memory twin in `tests`.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

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


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may go on. `at` is when the room counts as taken, on the gatekeeper's clock (Unix seconds)."""

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Denied:
    """The request may not go on yet.

    `used` and `limit` are of the sliding minute, in `dimension`'s unit. `retry_after_s` is when `requested`
    would fit if nobody else took the room; None when it is larger than `limit` and never fits.
    """

    dimension: Literal["requests", "tokens"]
    limit: int
    used: int
    requested: int
    retry_after_s: float | None


Decision = Granted | Denied


@dataclass(frozen=True, slots=True)
class Quota:
    """What a key has left in each dimension, as this process knows it; `reset_s` is until all is free again."""

    limit_requests: int
    remaining_requests: int
    reset_requests_s: float
    limit_tokens: int
    remaining_tokens: int
    reset_tokens_s: float


class GatekeeperUnavailable(Exception):
    """The gatekeeper cannot be asked and nothing is known of the key; trying again in a second may help."""


class Gatekeeper(Protocol):
    """Keys and limits, as a request sees them."""

    async def identify(self, secret: str) -> Principal | None:
        """Return who holds the secret; None if it is unknown, revoked or expired.

        Raises:
            GatekeeperUnavailable: the secret is not in this process's cache and nobody can be asked.
        """
        ...

    async def admit(self, principal: Principal) -> Decision:
        """Take one request out of the key's minute."""
        ...

    async def reserve(self, principal: Principal, tokens: int) -> Decision:
        """Take tokens out of the key's minute, before they are used."""
        ...

    def settle(self, principal: Principal, *, granted: Granted, reserved: int, used: int) -> None:
        """Correct a reservation to what was really used; `used` 0 gives all of it back. Never waits.

        `granted` is what `reserve` returned: what is given back must leave the minute in which it was taken.
        """
        ...

    def quota(self, principal: Principal) -> Quota:
        """Return what the key has left, from local knowledge. Never waits."""
        ...


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One line of the request log: everything about a request except its content. Times in seconds, `at` Unix.

    `batch_id` names the batch whose line it was, None for a request over HTTP.
    """

    request_id: str
    at: float
    key_id: str | None
    account: str | None
    tier: str | None
    method: str
    route: str
    model: str | None
    status: int
    code: str | None
    stream: bool
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ttft_s: float | None
    total_s: float
    batch_id: str | None = None


class RequestLog(Protocol):
    """Where request records go."""

    def record(self, record: RequestRecord) -> None:
        """Keep the record; never waits and never raises."""
        ...
