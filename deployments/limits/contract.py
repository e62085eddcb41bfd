"""How much a key may do: the values and the contract between the ingress and the gatekeeper.

A refusal is a value, never an exception. `limits.client.gatekeeper_client` keeps the contract with leases from the
gatekeeper actor, a twin in `tests` in memory.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from deployments.state.identity.principal import Principal


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may go on. `at` is when the room counts as taken, on the gatekeeper's clock (Unix seconds)."""

    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Denied:
    """The request may not go on yet.

    `used` and `limit` are of the sliding minute, in `dimension`'s unit. `retry_after_s` is when `requested`
    would fit if no other request took the room; None when it is larger than `limit` and never fits.
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
            GatekeeperUnavailable: the secret is not in this process's cache and the gatekeeper does not answer.
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
