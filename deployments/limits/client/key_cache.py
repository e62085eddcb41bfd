"""Who holds which secret, as one ingress replica remembers it between questions to the gatekeeper.

A cached key is trusted for TRUST_S seconds after news of changed keys; whoever comes later waits for news first.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable

from deployments.limits.contract import GatekeeperUnavailable
from deployments.limits.messages import Exchanged, Identified, Transport, TransportDown
from deployments.state.identity.principal import Principal

TRUST_S = 0.6
RETRY_S = 0.05
PATIENCE_S = 5.0
_NOBODY_S = 1.0
_LOOKS = 4
_LOOK_AGAIN_S = 0.1
_MAX_NOBODIES = 10_000
_MAX_KNOWN = 100_000


class KeyCache:
    """The digests that were asked for, and whom they stand for."""

    def __init__(
        self,
        transport: Transport,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.revision = 0
        self.trusted_until = float("-inf")
        self._pepper: bytes | None = None
        self._transport = transport
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._known: dict[bytes, Identified] = {}
        self._nobodies: dict[bytes, float] = {}
        self._looking: dict[bytes, asyncio.Task[Principal | None]] = {}

    @property
    def has_pepper(self) -> bool:
        """The pepper is known."""
        return self._pepper is not None

    async def learn_pepper(self) -> None:
        """Ask the gatekeeper for what digests are made with, unless it is known.

        Raises:
            GatekeeperUnavailable: it did not answer for PATIENCE_S seconds.
        """
        deadline = self._clock() + PATIENCE_S
        while self._pepper is None:
            try:
                self._pepper = await self._transport.pepper()
            except TransportDown:
                if self._clock() >= deadline:
                    raise GatekeeperUnavailable("The gatekeeper has not been reached yet.") from None
                await self._sleep(RETRY_S)

    def digest(self, secret: str) -> bytes:
        """Return what the secret is looked up by; `learn_pepper` comes first."""
        assert self._pepper is not None
        return hmac.digest(self._pepper, secret.encode(), "sha256")

    def get(self, digest: bytes) -> Identified | None:
        """Return what is cached, trusted or not; None if nothing is."""
        return self._known.get(digest)

    def accepted(self, known: Identified) -> Principal | None:
        """Return who it is, None if the key's time is over."""
        if known.accepted_until is not None and known.accepted_until <= self._wall():
            return None
        return known.principal

    def hear(self, reply: Exchanged, sent_at: float) -> None:
        """Take in news; they are from `sent_at` or later."""
        self.trusted_until = sent_at + TRUST_S
        self.revision = reply.revision
        if reply.changed is None:
            self._known.clear()
            self._nobodies.clear()
        elif reply.changed:
            self._nobodies.clear()
            for digest in reply.changed:
                self._known.pop(digest, None)

    async def look_up(self, digest: bytes, patience_s: float) -> Principal | None:
        """Ask the gatekeeper who it is, once for all who want to know; remember the answer.

        Raises:
            GatekeeperUnavailable: it did not answer for `patience_s` seconds.
        """
        if self._nobodies.get(digest, 0.0) > self._clock():
            return None
        look = self._looking.get(digest)
        if look is None:
            look = self._looking[digest] = asyncio.create_task(self._look_up(digest, patience_s))
            look.add_done_callback(lambda _: self._looking.pop(digest, None))
        return await asyncio.shield(look)

    async def _look_up(self, digest: bytes, patience_s: float) -> Principal | None:
        deadline = self._clock() + patience_s
        num_looks = 0
        while True:
            try:
                identified = await self._transport.identify(digest)
            except TransportDown:
                if self._clock() >= deadline:
                    raise GatekeeperUnavailable("The gatekeeper is away and the API key is not known here.") from None
                await self._sleep(RETRY_S)
                continue
            num_looks += 1
            if not identified.is_certain and num_looks < _LOOKS:
                await self._sleep(_LOOK_AGAIN_S)  # A key that was issued a moment ago is not refused for haste.
            elif identified.revision >= self.revision:  # Else the answer is older than a change already heard of.
                break
        if identified.principal is None:
            if len(self._nobodies) >= _MAX_NOBODIES:
                self._nobodies.clear()
            self._nobodies[digest] = self._clock() + _NOBODY_S
            return None
        if len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[digest] = identified
        return self.accepted(identified)
