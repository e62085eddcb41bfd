"""The gatekeeper's process: the core in memory, and a thread that syncs it with the database.

No client waits for the database: changes of keys are polled, charges are written to a journal on the node at once and
to the database every few seconds, and request records are written in batches. A restart restores the account of the
last minute exactly, from snapshot and journal. After a clean stop the journal is empty. If the journal is gone (on
another node), nothing is granted for a second, while every client reports its grants since the last snapshot. Only the
grants of clients that died with the node are lost.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from deployments.config import ConfigError
from deployments.limits.core import GatekeeperCore, Keyring
from deployments.limits.journal import FileJournal, restore_core
from deployments.limits.messages import Identified, KeysUnread, Stopping, SyncReply, SyncRequest, TransportDown
from deployments.limits.regions.core import RegionCore
from deployments.limits.regions.link import RegionClient, RegionLink
from deployments.limits.regions.messages import parse_request, render
from deployments.limits.snapshots import Snapshot, load_snapshot, save_snapshot
from deployments.proof import RegionTrust
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.regions import ResolvedRegion
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageStore
from deployments.waiting import BackgroundLoop

logger = logging.getLogger(__name__)

_MAX_BUFFERED_RECORDS = 100_000
_RECORDS_PER_FLUSH = 5_000


@dataclass(frozen=True)
class Intervals:
    """Seconds between two polls of keys, two snapshots, and two writes of request records."""

    key_poll_s: float = 0.2
    snapshot_s: float = 5.0
    record_flush_s: float = 1.0


class GatekeeperProcess:
    """The keys and limits of the whole service, in its only gatekeeper.

    Its methods are called one at a time. Each raises TransportDown until the database has answered once.
    """

    def __init__(self, state: ResolvedState, intervals: Intervals = Intervals()) -> None:
        self._state = state
        self._intervals = intervals
        self._patience = state.patience
        self._epoch = secrets.token_hex(8)
        self._core: GatekeeperCore | None = None
        self._journal: FileJournal | None = None
        self._database: Database | None = None
        self._next_look_at = 0.0
        self._can_look = True
        self._saving = asyncio.Lock()
        self._records: deque[tuple[str, int, RequestRecord]] = deque()
        self._durable: dict[str, int] = {}
        self._links: list[RegionLink] = []
        self._is_stopping = False
        self._background = BackgroundLoop("gatekeeper-database")
        starting = self._background.start(self._start_when_possible())
        try:
            starting.result(self._patience.start_s)
        except TimeoutError:
            logger.warning("The database does not answer; the gatekeeper keeps trying.")

    def identify(self, digest: bytes) -> Identified:
        """Return the holder of a digest; for an unknown one, read changes of keys first, at most ten times a second.

        Raises:
            KeysUnread: it is unknown, and the database does not answer.
        """
        core = self._ready()
        identified = core.identify(digest)
        if identified.principal is None:
            is_certain = time.monotonic() >= self._next_look_at
            if is_certain:
                is_certain = self._poll_keys_now()
                # After the look-up, which may cross an ocean: made-up secrets must leave time for others.
                self._next_look_at = max(self._next_look_at, time.monotonic() + self._patience.look_again_s)
            identified = core.identify(digest)._replace(is_certain=is_certain)
            if identified.principal is None and not self._can_look:
                raise KeysUnread("The key may be new, and the database does not answer.")
        return identified

    def sync(self, request: SyncRequest) -> SyncReply:
        """Return the reply to a client's sync.

        Raises:
            Stopping: it is about to stop.
        """
        if self._is_stopping:
            raise Stopping("The gatekeeper stops.")
        return self._ready().sync(request)

    def lend(self, request: bytes) -> bytes:
        """Return the reply to another region's request for quota loans, both in the form of `regions.messages`.

        Raises:
            ValueError: it is no request, or there are no other regions.
        """
        core = self._ready()
        if self._is_stopping:
            raise Stopping("The gatekeeper stops.")
        if not isinstance(core, RegionCore):
            raise ValueError("There are no other regions.")
        return render(core.lend(parse_request(request)))

    def shares(self) -> dict[str, Any] | None:
        """Return the quota loans, in the form of `RegionCore.shares`; None if there are no other regions."""
        core = self._ready()
        return core.shares() if isinstance(core, RegionCore) else None

    def refresh_keys(self) -> int:
        """Read changes of keys now; return the revision after that."""
        core = self._ready()
        self._poll_keys_now()
        return core.keyring.revision

    def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        """Buffer request records numbered from `first`, unless too many are buffered.

        Return the epoch of this process, and the number below which all records of the client are in the database.
        """
        self._ready()
        if len(self._records) + len(rows) <= _MAX_BUFFERED_RECORDS:
            for number, row in enumerate(rows, first):
                self._records.append((client_id, number, RequestRecord(*row)))  # type: ignore[arg-type]
        return self._epoch, self._durable.get(client_id, 0)

    def fingerprint(self) -> str:
        """Return the digest of this gatekeeper's configuration."""
        return fingerprint(self._state)

    def grant_no_more(self) -> None:
        """Grant no more, and announce the stop to every client."""
        self._is_stopping = True

    def stop(self) -> None:
        """Save everything and close the database."""
        self.grant_no_more()
        for link in self._links:
            link.stop()
        try:
            self._background.cancel()
            self._background.run(self._stop(), timeout_s=10)
        finally:
            self._background.stop()

    def _poll_keys_now(self) -> bool:
        """Read changes of keys; return whether the database answered."""
        try:
            self._background.run(self._poll_keys(), timeout_s=self._patience.look_s)
        except Exception as error:  # The background poll tries again and logs the cause.
            self._can_look = False
            self._next_look_at = time.monotonic() + self._patience.look_pause_s
            logger.debug("Keys could not be refreshed: %s", type(error).__name__)
            return False
        return True

    def _ready(self) -> GatekeeperCore:
        if self._core is None:
            raise TransportDown("The gatekeeper has not reached its database yet.")
        return self._core

    async def _start_when_possible(self) -> None:
        while True:
            try:
                await self._start()
                return
            except ConfigError as error:
                logger.warning("%s", error)
                await asyncio.sleep(1.0)

    async def _start(self) -> None:
        database = await connect(self._state.database_url, self._patience)
        store = KeyStore(database, self._state.pepper, self._state.config.tiers)
        snapshot = await load_snapshot(database, self._state.region_name)
        region = self._state.region
        keyring = Keyring()
        keyring.apply(*await store.changes_since(0))
        keyring.start_here()
        core, self._journal = restore_core(self._state, snapshot, keyring, self._wake_links)
        self._database, self._store, self._usage = database, store, UsageStore(database)
        await self._save_snapshot(core)
        self._core = core
        if isinstance(core, RegionCore) and region is not None:
            self._start_links(core, region)
        every = self._intervals
        self._background.repeat("Polling keys", every.key_poll_s, self._poll_keys)
        self._background.repeat("The limiter's snapshot", every.snapshot_s, self._snapshot)
        self._background.repeat("Writing request records", every.record_flush_s, self._flush_records)

    def _start_links(self, core: RegionCore, region: ResolvedRegion) -> None:
        trust = RegionTrust.from_pepper(self._state.pepper)
        for name, address in region.others.items():
            client = RegionClient(name, address, trust, region.certificate_authority, self._patience)
            self._links.append(RegionLink(core, name, client))
        for link in self._links:
            link.start()

    def _wake_links(self) -> None:
        for link in self._links:
            link.wake()

    async def _poll_keys(self) -> None:
        core = self._ready()
        revision, changed = await self._store.changes_since(core.keyring.revision)
        self._can_look = True
        if revision != core.keyring.revision:
            core.apply_keys(revision, changed)

    async def _snapshot(self) -> None:
        core = self._ready()
        core.sweep()
        async with self._saving:  # Out of order, an older snapshot would replace a newer one.
            await self._save_snapshot(core)

    async def _save_snapshot(self, core: GatekeeperCore, *, is_last: bool = False) -> None:
        """Save the keys that changed since the last snapshot. Later changes are in the journal's next segment.

        After the last snapshot there are none.
        """
        journal, database = self._journal, self._database
        if journal is None or database is None:
            raise TransportDown("The gatekeeper has not started yet.")
        with core.lock:
            now = core.clock()
            key_ids = core.ledger.take_changed()
            serials = core.serials()
            segment = journal.rotate(serials)
        charges = []
        for key_id in key_ids:
            with core.lock:
                charges.append(core.ledger.charges(key_id, now))
        snapshot = Snapshot(journal.journal_id, segment, now, charges, serials if is_last else None)
        try:
            await save_snapshot(database, snapshot, self._state.region_name)
        except BaseException:
            with core.lock:
                core.ledger.mark_changed(key_ids)
            raise
        journal.drop_before(segment)

    async def _flush_records(self) -> None:
        while self._records:
            batch = [self._records[index] for index in range(min(_RECORDS_PER_FLUSH, len(self._records)))]
            await self._usage.add(record for _, _, record in batch)
            for client_id, number, _ in batch:
                self._durable[client_id] = max(self._durable.get(client_id, 0), number + 1)
                self._records.popleft()

    async def _stop(self) -> None:
        if self._core is not None:
            await self._flush_records()
            await self._save_snapshot(self._core, is_last=True)
        if self._journal is not None:
            self._journal.close()
        if self._database is not None:
            await self._database.close()


def fingerprint(state: ResolvedState) -> str:
    """Return a digest of the configuration. It reveals no secret."""
    parts = (
        state.config.model_dump_json(),
        str(state.state_dir),
        state.database_url,
        state.pepper.hex(),
        repr(state.region),
        repr(state.tls),
        repr(state.patience),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
