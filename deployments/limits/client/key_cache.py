"""The cache of API keys in an ingress replica, which `GatekeeperClient` reads for every request.

A cached key is trusted for `Patience.trust_s` after a sync; a request that comes later waits for the next sync.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable

from deployments.limits.contract import GatekeeperUnavailable
from deployments.limits.messages import Identified, SyncReply, Transport, TransportDown
from deployments.patience import USUAL, Patience
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.principal import Principal

_UNKNOWN_S = 1.0
_LOOKS = 4
_LONGEST_RETRY = 8
"""The longest pause between two tries, in multiples of the first: made-up secrets must leave time for others."""
_MAX_READS = 4
"""Keys read at once, so that made-up secrets cannot take all connections to the database."""
_MAX_UNKNOWN = 10_000
_MAX_KNOWN = 100_000
_NO_DIGEST = bytes(32)
"""The digest of no key. Any digest shows whether keys can be read."""


class StoredKeys:
    """Finds the holder of a digest in the database, while the gatekeeper does not answer."""

    def __init__(self, store: KeyStore, patience: Patience = USUAL, wall: Callable[[], float] = time.time) -> None:
        self._store = store
        self._patience = patience
        self._wall = wall
        self._reads = asyncio.Semaphore(_MAX_READS)

    async def identify(self, digest: bytes) -> Identified | None:
        """Return the holder of a digest; None if the database does not answer either."""
        try:
            async with asyncio.timeout(self._patience.stored_key_s), self._reads:
                revision, key = await self._store.find(digest)
        except Exception:  # For any reason: the request is refused as without a database.
            return None
        return Identified.of(key, digest, revision, self._wall())


class KeyCache:
    """Digests under `pepper`, and their holders. Unknown digests are cached for a second.

    While the gatekeeper does not answer, digests that are not cached are looked up in `stored`, if there is one.
    """

    def __init__(
        self,
        transport: Transport,
        pepper: bytes,
        stored: StoredKeys | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
        patience: Patience,
    ) -> None:
        self.revision = 0
        self.trusted_until = float("-inf")
        self._pepper = pepper
        self._stored = stored
        self._transport = transport
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._patience = patience
        self._known: dict[bytes, Identified] = {}
        self._unknown: dict[bytes, float] = {}
        self._looking: dict[bytes, asyncio.Task[Principal | None]] = {}

    def digest(self, secret: str) -> bytes:
        """Return the digest of a secret."""
        return hmac.digest(self._pepper, secret.encode(), "sha256")

    def get(self, digest: bytes) -> Identified | None:
        """Return the cached holder, trusted or not; None if the digest is not cached."""
        return self._known.get(digest)

    def accepted(self, known: Identified) -> Principal | None:
        """Return the holder; None if the key has expired."""
        if known.accepted_until is not None and known.accepted_until <= self._wall():
            return None
        return known.principal

    def update(self, reply: SyncReply, sent_at: float) -> None:
        """Drop the keys that changed. The reply describes `sent_at` or later."""
        self.trusted_until = sent_at + self._patience.trust_s
        self.revision = reply.revision
        if reply.changed is None:
            self._known.clear()
            self._unknown.clear()
        elif reply.changed:
            self._unknown.clear()
            for digest in reply.changed:
                self._known.pop(digest, None)

    async def look_up(self, digest: bytes, timeout_s: float, *, is_away: bool = False) -> Principal | None:
        """Return the holder of a digest from the gatekeeper or the database; concurrent requests share one call.

        While the gatekeeper `is_away`, the database is asked first.

        Raises:
            GatekeeperUnavailable: neither answered for `timeout_s` seconds.
        """
        if self._unknown.get(digest, 0.0) > self._clock():
            return None
        look = self._looking.get(digest)
        if look is None:
            look = self._looking[digest] = asyncio.create_task(self._look_up(digest, timeout_s, is_away))
            look.add_done_callback(lambda _: self._looking.pop(digest, None))
        return await asyncio.shield(look)

    async def can_read_stored(self) -> bool:
        """Return whether the database answers."""
        return await self._find_stored(_NO_DIGEST) is not None

    async def _look_up(self, digest: bytes, timeout_s: float, is_away: bool) -> Principal | None:
        stored = await self._find_stored(digest) if is_away else None
        return self._take(digest, stored or await self._ask(digest, timeout_s))

    async def _find_stored(self, digest: bytes) -> Identified | None:
        return None if self._stored is None else await self._stored.identify(digest)

    async def _ask(self, digest: bytes, timeout_s: float) -> Identified:
        deadline = self._clock() + timeout_s
        num_looks, retry_s = 0, self._patience.retry_s
        while True:
            try:
                identified = await self._transport.identify(digest)
            except TransportDown:
                stored = await self._find_stored(digest)
                if stored is not None:
                    return stored
                left_s = deadline - self._clock()
                if left_s <= 0:
                    raise GatekeeperUnavailable("The key cannot be looked up at the moment.") from None
                await self._sleep(min(retry_s, left_s))
                retry_s = min(2 * retry_s, _LONGEST_RETRY * self._patience.retry_s)
                continue
            num_looks += 1
            if not identified.is_certain and num_looks < _LOOKS:
                await self._sleep(self._patience.look_again_s)  # The key may be new.
            elif identified.revision >= self.revision:  # Otherwise a known change is missing from it.
                return identified

    def _take(self, digest: bytes, identified: Identified) -> Principal | None:
        if identified.principal is None:
            if len(self._unknown) >= _MAX_UNKNOWN:
                self._unknown.clear()
            self._unknown[digest] = self._clock() + _UNKNOWN_S
            return None
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[digest] = identified
        return self.accepted(identified)
