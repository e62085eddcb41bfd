"""The contract between the ingress and the gatekeeper: the holder of a key, and the room left in its limits.

A refusal is a value, never an exception. `limits.client.gatekeeper_client` implements the contract with leases from the
gatekeeper actor; a twin in `tests` implements it in memory.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from deployments.state.identity.principal import Principal


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may go on. Its charge counts from `at`, in Unix seconds of the gatekeeper's clock."""

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Denied:
    """The request must wait. `used` and `limit` are those of the sliding minute, in the unit of `dimension`.

    After `retry_after_s` seconds `requested` fits if nothing else is charged; None if it is larger than `limit` and
    never fits. The dimension `calls` counts requests for which the gatekeeper has no limit.
    """

    dimension: Literal["requests", "tokens", "calls"]
    limit: int
    used: int
    requested: int
    retry_after_s: float | None


Decision = Granted | Denied


@dataclass(frozen=True, slots=True)
class Quota:
    """The room left in each dimension, as far as this process knows; after `reset_..._s` seconds all of it is free."""

    limit_requests: int
    remaining_requests: int
    reset_requests_s: float
    limit_tokens: int
    remaining_tokens: int
    reset_tokens_s: float


class GatekeeperUnavailable(Exception):
    """The key cannot be checked at the moment. Another try in a second may succeed."""


class Gatekeeper(Protocol):
    """Keys and limits, as requests use them."""

    async def identify(self, secret: str) -> Principal | None:
        """Return the holder of a secret; None if it is unknown, revoked or expired.

        Raises:
            GatekeeperUnavailable: the gatekeeper has been away for too long; or the key is not cached, the gatekeeper
                is away or does not know it, and the database is away.
        """

    async def can_check_keys(self) -> bool:
        """Return whether keys can be checked: by the gatekeeper, or without it by the database."""

    def digest(self, secret: str) -> bytes:
        """Return the digest of a secret, 32 bytes that do not reveal it."""

    async def identify_digest(self, digest: bytes) -> Principal | None:
        """Return the holder of the secret with this digest; as `identify` otherwise."""

    async def admit(self, principal: Principal) -> Decision:
        """Charge one request to the key's minute."""

    async def reserve(self, principal: Principal, tokens: int) -> Decision:
        """Charge tokens to the key's minute before they are used."""

    def settle(self, principal: Principal, *, granted: Granted, reserved: int, used: int) -> None:
        """Correct a reservation to the tokens that were used, 0 to refund all of it. Never waits.

        `granted` is the result of `reserve`: a refund goes to the minute that was charged.
        """

    def quota(self, principal: Principal) -> Quota:
        """Return the room left, as far as this process knows. Never waits."""
