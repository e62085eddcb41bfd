"""Ends answers whose key is no longer accepted: a stream may run for an hour, and its key be revoked meanwhile."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from deployments.limits.contract import Gatekeeper, GatekeeperUnavailable
from deployments.patience import USUAL, Patience


class KeyWatch:
    """Looks at the keys of running answers, as long as there are any."""

    def __init__(self, gatekeeper: Gatekeeper, patience: Patience = USUAL) -> None:
        self._gatekeeper = gatekeeper
        self._patience = patience
        self._watched: defaultdict[bytes, set[Callable[[], object]]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, digest: bytes | None, end: Callable[[], object]) -> Iterator[None]:
        """Call `end` once if the secret with this digest is revoked or expires inside the context.

        Without a digest nothing is watched: a page of the console has a session in place of a key.
        """
        if digest is None:
            yield
            return
        self._watched[digest].add(end)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._watched[digest].discard(end)
            if not self._watched[digest]:
                del self._watched[digest]

    async def _look(self) -> None:
        while self._watched:
            await asyncio.sleep(self._patience.key_look_s)
            for digest in list(self._watched):
                with suppress(GatekeeperUnavailable):
                    if await self._gatekeeper.identify_digest(digest) is None:
                        for end in self._watched.get(digest, ()):
                            end()
