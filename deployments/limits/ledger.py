"""The gatekeeper's account: the charges of every key in the last minute. Times are on the gatekeeper's clock.

`GatekeeperCore` changes it, and each change is noted in the journal, its only I/O.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from deployments.limits.messages import Ask, KeyUsage, Lease, Posting
from deployments.limits.window import DIMENSIONS, KeyLimits, Shortage


class Change(NamedTuple):
    """The `number`th change of the account: a charge, or a refund if the amount is negative."""

    number: int
    posting: Posting


class Journal(Protocol):
    """Has every change before it is answered."""

    def note(self, change: Change) -> None:
        """Buffer a change until the next flush."""

    def note_serial(self, client_id: str, serial: int) -> None:
        """Buffer the last applied serial of a client until the next flush."""

    def flush(self) -> None:
        """Write the buffer."""


class Charges(NamedTuple):
    """All charges of one key as (at, amount), as of change `number`."""

    key_id: str
    number: int
    requests: list[tuple[float, int]]
    tokens: list[tuple[float, int]]


class Ledger:
    """The limits and windows of all keys in use."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.number = 0
        self._journal = journal
        self._keys: dict[str, KeyLimits] = {}
        self._changed: set[str] = set()

    def knows(self, key_id: str) -> bool:
        """Return whether the key has limits here."""
        return key_id in self._keys

    def key_ids(self) -> list[str]:
        """Return every key that has limits here."""
        return list(self._keys)

    def set_limits(self, key_id: str, requests_per_minute: int, tokens_per_minute: int) -> None:
        """Set the limits of a key."""
        limits = self._limits_of(key_id)
        limits.requests_per_minute, limits.tokens_per_minute = requests_per_minute, tokens_per_minute

    def take(self, ask: Ask, now: float, valid_s: float, num_clients: int) -> Lease | Shortage:
        """Return a lease that covers the ask for `valid_s` seconds, or the shortage."""
        limits = self._keys[ask.key_id]
        at = now + valid_s
        taken = limits.take(
            now,
            at,
            requests=ask.requests,
            tokens=ask.tokens,
            spare_requests=ask.spare_requests,
            spare_tokens=ask.spare_tokens,
            num_clients=num_clients,
        )
        if isinstance(taken, Shortage):
            return taken
        for dimension, amount in zip(DIMENSIONS, taken, strict=True):
            if amount:
                self._note(Posting(ask.key_id, dimension, at, amount))
        return Lease(at, *taken)

    def refund(self, posting: Posting, now: float) -> None:
        """Refund an unused charge, unless its minute is over."""
        limits = self._keys.get(posting.key_id)
        if limits is None:
            return
        taken = limits.window(posting.dimension).refund(posting.at, posting.amount, now)
        if taken:
            self._note(posting._replace(amount=-taken))

    def charge(self, posting: Posting) -> None:
        """Charge use without a lease, even beyond the limit."""
        self._limits_of(posting.key_id).window(posting.dimension).charge(posting.at, posting.amount)
        self._note(posting)

    def replay(self, change: Change, now: float) -> None:
        """Apply a change from the journal, without noting it again."""
        posting = change.posting
        window = self._limits_of(posting.key_id).window(posting.dimension)
        if posting.amount > 0:
            window.charge(posting.at, posting.amount)
        else:
            window.refund(posting.at, -posting.amount, now)
        self._changed.add(posting.key_id)
        self.number = max(self.number, change.number)

    def restore(self, charges: Charges) -> None:
        """Add the charges of a snapshot."""
        limits = self._limits_of(charges.key_id)
        for window, entries in (limits.requests, charges.requests), (limits.tokens, charges.tokens):
            for at, amount in entries:
                window.charge(at, amount)
        self.number = max(self.number, charges.number)

    def usage(self, key_id: str, now: float) -> KeyUsage | None:
        """Return the usage of a key; None if it has no limits here."""
        limits = self._keys.get(key_id)
        if limits is None:
            return None
        reset_requests_s, reset_tokens_s = limits.requests.reset_s(now), limits.tokens.reset_s(now)
        return KeyUsage(limits.requests.used, reset_requests_s, limits.tokens.used, reset_tokens_s)

    def take_changed(self) -> list[str]:
        """Return the keys that changed since the last call."""
        changed, self._changed = self._changed, set()
        return list(changed)

    def mark_changed(self, key_ids: Iterable[str]) -> None:
        """Mark keys from `take_changed` as changed again after they could not be saved."""
        self._changed.update(key_ids)

    def charges(self, key_id: str, now: float) -> Charges:
        """Return all charges of a key."""
        limits = self._keys.get(key_id)
        if limits is None:
            return Charges(key_id, self.number, [], [])
        limits.requests.expire(now)
        limits.tokens.expire(now)
        return Charges(key_id, self.number, limits.requests.entries(), limits.tokens.entries())

    def forget_idle(self, now: float) -> None:
        """Drop the keys without charges."""
        for key_id, limits in list(self._keys.items()):
            limits.requests.expire(now)
            limits.tokens.expire(now)
            if limits.requests.is_empty and limits.tokens.is_empty:
                del self._keys[key_id]

    def _new(self) -> KeyLimits:
        return KeyLimits(0, 0)

    def _limits_of(self, key_id: str) -> KeyLimits:
        limits = self._keys.get(key_id)
        if limits is None:
            limits = self._keys[key_id] = self._new()
        return limits

    def _note(self, posting: Posting) -> None:
        self.number += 1
        self._changed.add(posting.key_id)
        if self._journal is not None:
            self._journal.note(Change(self.number, posting))
