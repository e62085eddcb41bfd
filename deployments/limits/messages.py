"""The messages between the gatekeeper and its clients, the ingress replicas: plain values over a transport.

A sync carries the client's asks for leases, its refunds and charges, and the revision of the keys that it knows. The
reply has the leases, and the changes of keys since that revision.
"""

from collections.abc import Mapping
from hmac import compare_digest
from types import MappingProxyType
from typing import NamedTuple, Protocol, Self

from deployments.limits.window import Dimension, Shortage
from deployments.state.identity.keys import StoredKey
from deployments.state.identity.principal import Principal

MAX_VALID_S = 5.0
"""The max validity of a lease."""


class TransportDown(Exception):
    """The gatekeeper did not answer: it is away, restarting or too slow. The call may still have taken effect."""


class Stopping(TransportDown):
    """The gatekeeper is about to stop, and another will start. The call had no effect."""


class KeysUnread(TransportDown):
    """The gatekeeper does not know the key and cannot read the database. The key may exist."""


class Identified(NamedTuple):
    """The holder of a digest as of `revision`; None if there is none.

    `accepted_until` is in Unix seconds; None means for ever. If `is_certain` is false, no key was found, but the
    database was not read and may have a new one.
    """

    revision: int
    principal: Principal | None
    accepted_until: float | None
    is_certain: bool = True

    @classmethod
    def of(cls, key: StoredKey | None, digest: bytes, revision: int, now: float) -> Self:
        """Return the holder of the secret with this digest, which is one of the key's, at `now`."""
        if key is None or key.principal is None:
            return cls(revision, None, None)
        until = key.principal.expires_at
        if not compare_digest(digest, key.digest):
            old_until = key.previous_expires_at or 0.0
            until = old_until if until is None else min(until, old_until)
        if until is not None and until <= now:
            return cls(revision, None, None)
        return cls(revision, key.principal, until)


class Ask(NamedTuple):
    """An ask for a lease: the need, all or nothing, and the spare room wanted beyond it."""

    key_id: str
    requests: int
    tokens: int
    spare_requests: int = 0
    spare_tokens: int = 0


class Lease(NamedTuple):
    """Room that may be used for `valid_s` seconds after it was asked for; it is charged at `at`."""

    at: float
    requests: int
    tokens: int


class PendingLoan(NamedTuple):
    """No room in this region, but another region is asked for a loan: its answer is expected in `again_s` seconds.

    A request that cannot wait so long is denied for the shortage.
    """

    again_s: float
    shortage: Shortage


class Posting(NamedTuple):
    """An amount charged or refunded in one dimension of one key at one time."""

    key_id: str
    dimension: Dimension
    at: float
    amount: int


class KeyUsage(NamedTuple):
    """The used part of a key's minute, and the seconds until all of it has expired."""

    used_requests: int
    reset_requests_s: float
    used_tokens: int
    reset_tokens_s: float


NO_USAGE = KeyUsage(0, 0.0, 0, 0.0)
Answer = Lease | Shortage | PendingLoan
"""The answer to an ask."""


class SyncRequest(NamedTuple):
    """The request of a sync. `refunds` and `charges` are applied once for each `serial`, even if repeated."""

    client_id: str
    serial: int
    revision: int
    valid_s: float
    asks: list[Ask]
    refunds: list[Posting]
    charges: list[Posting]
    is_replay: bool = False


class SyncReply(NamedTuple):
    """The reply of a sync.

    `answers` are in the order of the asks; None means to ask again in a moment. `changed` are the digests that changed
    after the client's revision, None if it is too old. If `replay_after` is set, the gatekeeper has lost its account,
    and asks for all grants to the client after that time. `lent` are the loans to other regions in the last minute.
    """

    now: float
    revision: int
    changed: list[bytes] | None
    answers: list[Answer] | None
    usage: dict[str, KeyUsage]
    num_clients: int
    replay_after: float | None
    lent: Mapping[str, KeyUsage] = MappingProxyType({})


class Transport(Protocol):
    """How a client reaches the gatekeeper. Every method raises TransportDown when it does not answer."""

    async def identify(self, digest: bytes) -> Identified:
        """Return the holder of a digest."""

    async def sync(self, request: SyncRequest) -> SyncReply:
        """Return the gatekeeper's reply."""

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        """Hand over request records, numbered from `first`.

        Return the epoch of the gatekeeper's process, and the number below which all records are in the database.
        """

    async def refresh_keys(self) -> None:
        """Let the gatekeeper read changes of keys now, so that a changed key counts from here on."""
