"""The real client and the real core, joined in memory under one clock that only the test moves."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.contract import Granted
from deployments.limits.core import GatekeeperCore, Keyring
from deployments.limits.ledger import Change, Ledger
from deployments.limits.messages import Identified, Stopping, SyncReply, SyncRequest, TransportDown
from deployments.state.identity.keys import StoredKey, digest_of
from deployments.state.identity.principal import Principal
from tests.twins.gatekeeper import TestClock
from tests.twins.keys import principal_of_key

T = TypeVar("T")

PEPPER = b"p" * 32


def secret_of(name: str) -> str:
    return f"sk-manta-{name}"


def principal_of(name: str, requests: int = 10, tokens: int = 40_000, **values: object) -> Principal:
    return principal_of_key(
        name,
        account=f"acct-{name}",
        organization=f"org-{name}",
        requests_per_minute=requests,
        tokens_per_minute=tokens,
        **values,
    )


def stored(revision: int, name: str, principal: Principal | None, previous: str | None = None) -> StoredKey:
    previous_digest = None if previous is None else digest_of(secret_of(previous), PEPPER)
    return StoredKey(revision, name, digest_of(secret_of(name), PEPPER), previous_digest, None, principal)


class MemoryJournal:
    """Keeps what was flushed; a crash loses the rest."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.serials: dict[str, int] = {}
        self._pending: list[Change] = []
        self._pending_serials: dict[str, int] = {}

    def note(self, change: Change) -> None:
        self._pending.append(change)

    def note_serial(self, client_id: str, serial: int) -> None:
        self._pending_serials[client_id] = serial

    def flush(self) -> None:
        self.changes += self._pending
        self.serials.update(self._pending_serials)
        self._pending, self._pending_serials = [], {}


class World:
    """One gatekeeper that can be killed, lost and cut off, and as many clients as are asked for."""

    def __init__(self, *principals: Principal) -> None:
        self.clock = TestClock()
        self.keyring = Keyring()
        self.keyring.apply(1, [stored(1, one.key_id, one) for one in principals])
        self.keyring.start_here()
        self.journal = MemoryJournal()
        self.core = self._core(Ledger(self.journal))
        self.is_down = False
        self.silent_s = 0.0
        self.is_stopping = False
        self.loses_replies = False
        self.latency_s = 0.0
        self.num_syncs = 0
        self.num_identified = 0

    def client(self) -> GatekeeperClient:
        async def sleep(seconds: float) -> None:
            self.clock.advance(seconds)
            await asyncio.sleep(0)

        return GatekeeperClient(self, PEPPER, clock=self.clock, wall=self.clock, sleep=sleep, background=False)

    def kill(self) -> None:
        """Replace the core by one that knows what the journal knows."""
        ledger = Ledger(self.journal)
        for change in self.journal.changes:
            ledger.replay(change, self.clock())
        self.core = self._core(ledger)
        self.core.restore_serials(self.journal.serials)

    def lose(self, since: float) -> None:
        """Replace the core by one that knows nothing of what was charged after `since`."""
        self.journal = MemoryJournal()
        self.core = self._core(Ledger(self.journal), lost_since=since)

    def change(self, key: StoredKey) -> None:
        self.core.apply_keys(key.revision, [key])

    def _core(self, ledger: Ledger, lost_since: float | None = None) -> GatekeeperCore:
        return GatekeeperCore(self.keyring, ledger, self.clock, journal=self.journal, lost_since=lost_since)

    async def _carry(self, call: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        self.clock.advance(self.latency_s)
        if self.is_down:
            self.clock.advance(self.silent_s)
            raise TransportDown("switched off")
        answer = call()
        self.clock.advance(self.latency_s)
        if self.loses_replies:
            self.loses_replies = False
            raise TransportDown("the reply was lost")
        return answer

    async def identify(self, digest: bytes) -> Identified:
        self.num_identified += 1
        return await self._carry(lambda: self.core.identify(digest))

    async def sync(self, request: SyncRequest) -> SyncReply:
        self.num_syncs += 1
        if self.is_stopping:
            raise Stopping("stopping")
        return await self._carry(lambda: self.core.sync(request))

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        raise TransportDown("no records here")

    async def refresh_keys(self) -> None:
        await self._carry(lambda: None)


async def admit(client, principal, times: int = 1) -> list[bool]:
    return [isinstance(await client.admit(principal), Granted) for _ in range(times)]


async def with_client(*limits: int) -> tuple[World, GatekeeperClient, Principal]:
    """Return a gatekeeper with one key of these limits, a client, and the key's principal, which the client caches."""
    world = World(principal_of("key", *limits))
    client = world.client()
    principal = await client.identify(secret_of("key"))
    assert principal is not None
    return world, client, principal
