"""The contract between the ingress and the gatekeeper: who holds a key, and how much the key may still do.

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
    """The request may not go on yet. `calls` are requests that the gatekeeper does not count.

    `used` and `limit` are of the sliding minute, in the unit of `dimension`. After `retry_after_s` seconds `requested`
    fits if nothing else is charged; None if it is larger than `limit` and never fits.
    """

    dimension: Literal["requests", "tokens", "calls"]
    limit: int
    used: int
    requested: int
    retry_after_s: float | None


Decision = Granted | Denied


@dataclass(frozen=True, slots=True)
class Quota:
    """What a key has left in each dimension, as this process knows it; in `reset_..._s` seconds all is free."""

    limit_requests: int
    remaining_requests: int
    reset_requests_s: float
    limit_tokens: int
    remaining_tokens: int
    reset_tokens_s: float


class GatekeeperUnavailable(Exception):
    """Nobody can tell at the moment whether there is such a key; trying again in a second may help."""


class Gatekeeper(Protocol):
    """Keys and limits, as requests use them."""

    async def identify(self, secret: str) -> Principal | None:
        """Return the holder of a secret; None if it is unknown, revoked or expired.

        Raises:
            GatekeeperUnavailable: the secret is not in this process's cache, and whoever could look it up is away.
        """
        ...

    async def can_check_keys(self) -> bool:
        """Return whether keys that were in use before can be checked: by the gatekeeper, or without it."""
        ...

    def digest(self, secret: str) -> bytes:
        """Return the 32 bytes under which a secret is known; they do not tell it."""
        ...

    async def identify_digest(self, digest: bytes) -> Principal | None:
        """Return the holder of the secret with this digest; as `identify` otherwise."""
        ...

    async def admit(self, principal: Principal) -> Decision:
        """Charge one request to the key's minute."""
        ...

    async def reserve(self, principal: Principal, tokens: int) -> Decision:
        """Charge tokens to the key's minute before they are used."""
        ...

    def settle(self, principal: Principal, *, granted: Granted, reserved: int, used: int) -> None:
        """Correct a reservation to the tokens that were used, 0 to refund all of it. Never waits.

        `granted` is what `reserve` returned: a refund must leave the minute that was charged.
        """
        ...

    def quota(self, principal: Principal) -> Quota:
        """Return what the key has left, as this process knows it. Never waits."""
        ...
