"""The API keys in the gatekeeper's memory, by digest, and the digests that changed lately.

`GatekeeperCore` reads it for every message; changes come from the poll of the database. Pure.
"""

from collections import deque
from collections.abc import Iterable

from deployments.limits.messages import Identified
from deployments.state.identity.keys import StoredKey
from deployments.state.identity.principal import Principal

_MAX_CHANGES = 10_000


class Keyring:
    """All keys of the database, as of `revision`."""

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
        """Return the holder of the secret with this digest at `now`, and when it ends."""
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
