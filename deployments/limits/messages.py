"""The messages between ingress replicas, the gatekeeper's clients, and the gatekeeper: plain values over a transport.

One kind of call, the sync, carries everything: leases wanted, room given back, and the revision of the keys that the
client knows. The reply has the leases and the changes of keys since.
"""

from typing import NamedTuple, Protocol

from deployments.limits.window import Dimension, Shortage
from deployments.state.identity.principal import Principal


class TransportDown(Exception):
    """The gatekeeper did not answer: it is away, restarting or too slow. The call may or may not have happened."""


class Identified(NamedTuple):
    """The holder of a digest as of `revision`, None if there is none; and until when (Unix seconds, None is for ever).

    Where `is_certain` is false no key was found, but the database was not asked: a new key may be there.
    """

    revision: int
    principal: Principal | None
    accepted_until: float | None
    is_certain: bool = True


class Ask(NamedTuple):
    """A lease wanted: the need, all or nothing, and what would be welcome beyond it."""

    key_id: str
    requests: int
    tokens: int
    spare_requests: int = 0
    spare_tokens: int = 0


class Lease(NamedTuple):
    """Room that may be used for `valid_s` seconds from when it was asked for; it counts as used at `at`."""

    at: float
    requests: int
    tokens: int


class Posting(NamedTuple):
    """An amount that belongs to one dimension of one key at one time."""

    key_id: str
    dimension: Dimension
    at: float
    amount: int


class Standing(NamedTuple):
    """How much of its minute a key has used, and in how many seconds nothing of it will count any more."""

    used_requests: int
    reset_requests_s: float
    used_tokens: int
    reset_tokens_s: float


class SyncRequest(NamedTuple):
    """A client's part of a sync. `refunds` and `charges` are applied once for each `serial`, if repeated too."""

    client_id: str
    serial: int
    revision: int
    valid_s: float
    asks: list[Ask]
    refunds: list[Posting]
    charges: list[Posting]
    is_replay: bool = False


class SyncReply(NamedTuple):
    """The gatekeeper's part of a sync.

    `answers` are in the order of the asks; None asks to try again in a moment. `changed` are the digests whose
    meaning changed after the client's revision, None if that is too long ago to say. `replay_after` asks for
    everything that the client was granted after that time, because the gatekeeper lost its own account of it.
    """

    now: float
    revision: int
    changed: list[bytes] | None
    answers: list[Lease | Shortage] | None
    standings: dict[str, Standing]
    num_clients: int
    replay_after: float | None


class Transport(Protocol):
    """How a client reaches the gatekeeper. Every method raises TransportDown when it does not answer."""

    async def pepper(self) -> bytes:
        """Return the secret under which API keys are digested."""
        ...

    async def identify(self, digest: bytes) -> Identified:
        """Return the holder of a digest."""
        ...

    async def sync(self, request: SyncRequest) -> SyncReply:
        """Return the gatekeeper's reply."""
        ...

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        """Hand over request records numbered from `first`.

        Returns what names the gatekeeper's process, and the number below which all are on disk.
        """
        ...

    async def refresh_keys(self) -> None:
        """Have the gatekeeper look at the database now: a key that was just changed counts from here on."""
        ...
