"""The keys of the database as an ingress replica reads them while the gatekeeper does not answer.

`KeyCache` asks for keys that it has not cached.
"""

import asyncio
import time
from collections.abc import Callable

from deployments.limits.messages import Identified
from deployments.patience import USUAL, Patience
from deployments.state.identity.key_store import KeyStore

_MAX_READS = 4
"""How many keys are read at once, so that made-up secrets cannot take all connections to the database."""


class StoredKeys:
    """Finds the holder of a digest without the gatekeeper."""

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
        except Exception:  # Any reason: the request is refused as if there were no database.
            return None
        return Identified.of(key, digest, revision, self._wall())
