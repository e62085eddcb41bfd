"""What every key was charged in the last minute: the gatekeeper's account, with a line in the journal for each change.

Pure but for the journal, which is any object with `write`. Times are on the gatekeeper's clock.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from deployments.limits.messages import Ask, Lease, Posting, Standing
from deployments.limits.window import KeyLimits, Shortage, Window


class Change(NamedTuple):
    """One change of the account: the `number`th, adding `amount` (negative: taking it back)."""

    number: int
    posting: Posting


class Journal(Protocol):
    """Where changes are written down before they are answered."""

    def note(self, change: Change) -> None:
        """Keep the change until the next flush."""
        ...

    def note_serial(self, client_id: str, serial: int) -> None:
        """Keep how far a client's postings were applied, until the next flush."""
        ...

    def flush(self) -> None:
        """Write down what was noted."""
        ...


class Charges(NamedTuple):
    """All that one key is charged, as of change `number`."""

    key_id: str
    number: int
    requests: list[tuple[float, int]]
    tokens: list[tuple[float, int]]


class Ledger:
    """The windows of all keys that were used lately."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.number = 0
        self._journal = journal
        self._keys: dict[str, KeyLimits] = {}
        self._changed: set[str] = set()

    def knows(self, key_id: str) -> bool:
        """The key has limits here."""
        return key_id in self._keys

    def key_ids(self) -> list[str]:
        """Return every key that has limits here."""
        return list(self._keys)

    def set_limits(self, key_id: str, requests_per_minute: int, tokens_per_minute: int) -> None:
        """Let these limits hold for the key from now on."""
        limits = self._keys.get(key_id)
        if limits is None:
            self._keys[key_id] = KeyLimits(requests_per_minute, tokens_per_minute)
        else:
            limits.requests_per_minute, limits.tokens_per_minute = requests_per_minute, tokens_per_minute

    def take(self, ask: Ask, now: float, valid_s: float, num_clients: int) -> Lease | Shortage:
        """Lease what is asked for, or say why not."""
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
        if taken.requests:
            self._note(Posting(ask.key_id, "requests", at, taken.requests))
        if taken.tokens:
            self._note(Posting(ask.key_id, "tokens", at, taken.tokens))
        return Lease(at, taken.requests, taken.tokens)

    def refund(self, posting: Posting, now: float) -> None:
        """Take back what a lease did not need; nothing once its minute is over."""
        limits = self._keys.get(posting.key_id)
        if limits is None:
            return
        taken = self._window(limits, posting).refund(posting.at, posting.amount, now)
        if taken:
            self._note(posting._replace(amount=-taken))

    def charge(self, posting: Posting) -> None:
        """Add what was used without a lease, whether there is room or not."""
        limits = self._keys.get(posting.key_id)
        if limits is None:
            limits = self._keys[posting.key_id] = KeyLimits(0, 0)
        self._window(limits, posting).charge(posting.at, posting.amount)
        self._note(posting)

    def replay(self, change: Change, now: float) -> None:
        """Make a journalled change again, without journalling it."""
        posting = change.posting
        limits = self._keys.setdefault(posting.key_id, KeyLimits(0, 0))
        window = self._window(limits, posting)
        if posting.amount > 0:
            window.charge(posting.at, posting.amount)
        else:
            window.refund(posting.at, -posting.amount, now)
        self._changed.add(posting.key_id)
        self.number = max(self.number, change.number)

    def restore(self, charges: Charges) -> None:
        """Take over what a snapshot says of a key."""
        limits = self._keys.setdefault(charges.key_id, KeyLimits(0, 0))
        for at, amount in charges.requests:
            limits.requests.charge(at, amount)
        for at, amount in charges.tokens:
            limits.tokens.charge(at, amount)
        self.number = max(self.number, charges.number)

    def standing(self, key_id: str, now: float) -> Standing | None:
        """Return how much of its minute the key has used."""
        limits = self._keys.get(key_id)
        if limits is None:
            return None
        reset_requests_s, reset_tokens_s = limits.requests.reset_s(now), limits.tokens.reset_s(now)
        return Standing(limits.requests.used, reset_requests_s, limits.tokens.used, reset_tokens_s)

    def take_changed(self) -> list[str]:
        """Return the keys that changed since the last call."""
        changed, self._changed = self._changed, set()
        return list(changed)

    def mark_changed(self, key_ids: Iterable[str]) -> None:
        """Count these keys as changed, because what `take_changed` returned could not be saved."""
        self._changed.update(key_ids)

    def charges(self, key_id: str, now: float) -> Charges:
        """Return all that the key is charged."""
        limits = self._keys.get(key_id)
        if limits is None:
            return Charges(key_id, self.number, [], [])
        limits.requests.expire(now)
        limits.tokens.expire(now)
        return Charges(key_id, self.number, limits.requests.entries(), limits.tokens.entries())

    def forget_idle(self, now: float) -> None:
        """Drop the keys that are charged nothing any more."""
        for key_id, limits in list(self._keys.items()):
            limits.requests.expire(now)
            limits.tokens.expire(now)
            if limits.requests.is_empty and limits.tokens.is_empty:
                del self._keys[key_id]

    def _note(self, posting: Posting) -> None:
        self.number += 1
        self._changed.add(posting.key_id)
        if self._journal is not None:
            self._journal.note(Change(self.number, posting))

    @staticmethod
    def _window(limits: KeyLimits, posting: Posting) -> Window:
        return limits.requests if posting.dimension == "requests" else limits.tokens
