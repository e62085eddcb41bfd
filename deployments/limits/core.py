"""The gatekeeper's core: keys and ledger in memory, and the reply to every message. Its only I/O is the journal.

`GatekeeperProcess` calls it from the threads of clients and of the database, which share one lock, for one message or
one key at a time. The clock is Unix time that never goes back.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deployments.limits.ledger import Journal, Ledger
from deployments.limits.messages import MAX_VALID_S, Answer, Ask, Identified, KeyUsage, SyncReply, SyncRequest
from deployments.limits.window import Shortage
from deployments.patience import USUAL, Patience
from deployments.state.identity.keys import StoredKey
from deployments.state.identity.principal import Principal

_MAX_CHANGES = 10_000
_CLIENT_SEEN_S = 5.0
_CLIENT_REMEMBERED_S = 180.0
_REPEATED_S = 1.0
"""The overlap of two replies, in seconds. Each repeats the last loans of the reply before, which may be lost."""


class Keyring:
    """All keys of the database as of `revision`, and the digests that changed lately."""

    def __init__(self) -> None:
        self.revision = 0
        self._by_id: dict[str, StoredKey] = {}
        self._by_digest: dict[bytes, StoredKey] = {}
        self._changes: deque[tuple[int, bytes]] = deque(maxlen=_MAX_CHANGES)
        self._changes_known_from = 0

    def apply(self, revision: int, changed: Iterable[StoredKey]) -> list[StoredKey]:
        """Apply the changes up to `revision`; return those that were not applied before."""
        applied = []
        for key in changed:
            known = self._by_id.get(key.key_id)
            if known is not None and known.revision >= key.revision:
                continue
            applied.append(key)
            for digest in {*self._digests(known), *self._digests(key)}:
                self._note(key.revision, digest)
            for digest in self._digests(known):
                self._by_digest.pop(digest, None)
            self._by_id[key.key_id] = key
            if key.principal is not None:
                for digest in self._digests(key):
                    self._by_digest[digest] = key
        self.revision = max(self.revision, revision)
        return applied

    def changes_since(self, revision: int) -> list[bytes] | None:
        """Return the digests that changed after `revision`; None if the list does not reach back that far."""
        if revision >= self.revision:
            return []
        if revision < self._changes_known_from:
            return None
        return [digest for at, digest in self._changes if at > revision]

    def start_here(self) -> None:
        """Clear the list of changes: the keys so far are the initial state."""
        self._changes.clear()
        self._changes_known_from = self.revision

    def identify(self, digest: bytes, now: float) -> Identified:
        """Return the holder of the secret with this digest at `now`, and its expiry."""
        return Identified.of(self._by_digest.get(digest), digest, self.revision, now)

    def principal(self, key_id: str) -> Principal | None:
        """Return the principal of a key; None if it is unknown or revoked."""
        key = self._by_id.get(key_id)
        return None if key is None else key.principal

    def _note(self, revision: int, digest: bytes) -> None:
        if len(self._changes) == _MAX_CHANGES:
            self._changes_known_from = self._changes[0][0]
        self._changes.append((revision, digest))

    @staticmethod
    def _digests(key: StoredKey | None) -> list[bytes]:
        if key is None:
            return []
        return [key.digest] if key.previous_digest is None else [key.digest, key.previous_digest]


@dataclass(slots=True)
class _Client:
    serial: int = 0
    seen_at: float = 0.0
    has_replayed: bool = False


class GatekeeperCore:
    """Answers the messages of clients.

    If charges since `lost_since` are missing, it grants nothing for `Patience.recovery_s`, the recovery time in which
    clients report their grants. If none are missing, it grants nothing until every known client has reported the grants
    that it made alone, for as long at most: a client goes on granting until it knows that the gatekeeper is back.
    """

    def __init__(
        self,
        keyring: Keyring,
        ledger: Ledger,
        clock: Callable[[], float],
        *,
        journal: Journal | None = None,
        lost_since: float | None = None,
        patience: Patience = USUAL,
    ) -> None:
        self.lock = threading.Lock()
        self.keyring = keyring
        self.ledger = ledger
        self.clock = clock
        self._patience = patience
        self._journal = journal
        self._lost_since = lost_since
        self._recovering_until = 0.0 if lost_since is None else clock() + patience.recovery_s
        self._clients: dict[str, _Client] = {}
        self._unreported: dict[str, int | None] = {}  # Each with the serial of its first message.
        self._reports_until = 0.0
        for key_id in ledger.key_ids():
            self._set_limits(key_id)

    def identify(self, digest: bytes) -> Identified:
        """Return the holder of a digest."""
        with self.lock:
            return self.keyring.identify(digest, self.clock())

    def sync(self, message: SyncRequest) -> SyncReply:
        """Apply refunds and charges, grant leases, and return them with the changes of keys."""
        with self.lock:
            now = self.clock()
            client = self._clients.get(message.client_id) or self._new_client(message.client_id)
            before, client.seen_at = client.seen_at, now
            self._apply_postings(client, message, now)
            self._note_report(message)
            answers = None if self._waits_for_clients(now) else self._answer(message, now)
            if self._journal is not None:
                self._journal.flush()
            return SyncReply(
                now=now,
                revision=self.keyring.revision,
                changed=self.keyring.changes_since(message.revision),
                answers=answers,
                usage=self._usage(message, now),
                num_clients=self._num_clients(now),
                replay_after=self._lost_since if now < self._recovering_until and not client.has_replayed else None,
                lent=self._lent_since(before - _REPEATED_S, now),
            )

    def apply_keys(self, revision: int, changed: Iterable[StoredKey]) -> None:
        """Apply changes of keys."""
        with self.lock:
            for key in self.keyring.apply(revision, changed):
                if key.principal is not None and self.ledger.knows(key.key_id):
                    self._set_limits(key.key_id)

    def sweep(self) -> None:
        """Drop keys without charges, and clients that have been gone for minutes."""
        with self.lock:
            now = self.clock()
            self.ledger.forget_idle(now)
            for client_id, client in list(self._clients.items()):
                if now - client.seen_at > _CLIENT_REMEMBERED_S:
                    del self._clients[client_id]

    def serials(self) -> dict[str, int]:
        """Return the last serial applied for each client, 0 if none was."""
        return {client_id: client.serial for client_id, client in self._clients.items()}

    def restore_serials(self, serials: dict[str, int]) -> None:
        """Continue from the serials that a journal holds, and wait for the reports of its clients."""
        now = self.clock()
        for client_id, serial in serials.items():
            client = self._clients.setdefault(client_id, _Client())
            client.serial, client.seen_at = serial, now
        self._unreported = dict.fromkeys(serials)
        self._reports_until = now + self._patience.recovery_s

    def _waits_for_clients(self, now: float) -> bool:
        return now < self._recovering_until or (bool(self._unreported) and now < self._reports_until)

    def _note_report(self, message: SyncRequest) -> None:
        """Count a client as reported after its second message.

        The first may be an old one, sent again. From its reply the client knows that the gatekeeper is back: it grants
        nothing alone any more, and reports all earlier grants in the second.
        """
        if message.client_id not in self._unreported or message.is_replay:
            return
        first = self._unreported[message.client_id]
        if first is None:
            self._unreported[message.client_id] = message.serial
        elif message.serial > first:
            del self._unreported[message.client_id]

    def _new_client(self, client_id: str) -> _Client:
        client = self._clients[client_id] = _Client()
        if self._journal is not None:
            self._journal.note_serial(client_id, 0)  # A restart waits for its report.
        return client

    def _apply_postings(self, client: _Client, message: SyncRequest, now: float) -> None:
        """Apply refunds and charges once, even if the client repeats a message whose reply was lost."""
        is_repeated = client.has_replayed if message.is_replay else message.serial <= client.serial
        if is_repeated:
            return
        for posting in message.charges:
            self.ledger.charge(posting)
            self._set_limits(posting.key_id)
        if message.is_replay:
            client.has_replayed = True
            return
        if now >= self._recovering_until:  # Until then their charges may be unknown.
            for posting in message.refunds:
                self.ledger.refund(posting, now)
        if message.refunds or message.charges:
            client.serial = message.serial
            if self._journal is not None:
                self._journal.note_serial(message.client_id, message.serial)

    def _answer(self, message: SyncRequest, now: float) -> list[Answer]:
        valid_s = min(max(message.valid_s, 0.0), MAX_VALID_S)
        num_clients = self._num_clients(now)
        return [self._take(ask, now, valid_s, num_clients) for ask in message.asks]

    def _take(self, ask: Ask, now: float, valid_s: float, num_clients: int) -> Answer:
        if not self.ledger.knows(ask.key_id) and not self._set_limits(ask.key_id):
            # The key was revoked after it was identified; the next attempt is refused for that.
            return Shortage("requests", 0, 0, ask.requests, 1.0)
        return self.ledger.take(ask, now, valid_s, num_clients)

    def _set_limits(self, key_id: str) -> bool:
        principal = self.keyring.principal(key_id)
        if principal is None:
            return False
        self.ledger.set_limits(key_id, principal.requests_per_minute, principal.tokens_per_minute)
        return True

    def _usage(self, message: SyncRequest, now: float) -> dict[str, KeyUsage]:
        touched = {ask.key_id for ask in message.asks}
        touched.update(posting.key_id for posting in message.refunds)
        found = {key_id: self.ledger.usage(key_id, now) for key_id in touched}
        return {key_id: usage for key_id, usage in found.items() if usage is not None}

    def _lent_since(self, at: float, now: float) -> dict[str, KeyUsage]:
        """Return the loans to other regions in the last minute, for each key with a loan since `at`."""
        return {}

    def _num_clients(self, now: float) -> int:
        return max(1, sum(1 for client in self._clients.values() if now - client.seen_at <= _CLIENT_SEEN_S))
