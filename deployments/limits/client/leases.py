"""The leases of an ingress replica: room of each key's minute, and the refunds and charges to report.

`GatekeeperClient` takes room from them. `SyncLoop` fills them, and reports their refunds and charges. Times named `at`
are on the gatekeeper's clock, all others on this process's monotonic clock. Nothing here waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from deployments.limits.contract import Denied, Granted, Quota
from deployments.limits.messages import KeyUsage, Lease, Posting
from deployments.limits.window import DIMENSIONS, Dimension, KeyLimits, Shortage
from deployments.state.identity.principal import Principal

# A denial is remembered this long. Refunds of other replicas are noticed after it.
DENIAL_S = 0.25

_MAX_SPARE = 1_000_000_000
_NONE = Granted()


@dataclass(slots=True, eq=False)
class LeasedRoom:
    """The rest of a lease in one dimension, usable until `until`.

    `spare` is the room wanted beyond the need in the next lease. `need` is the largest need of a recent request; each
    new lease lowers it by an eighth.
    """

    left: int = 0
    size: int = 0
    spare: int = 0
    need: int = 0
    until: float = 0.0
    granted: Granted = _NONE

    def take(self, amount: int, now: float) -> bool:
        """Take an amount from the lease; return False if too little is left, or the lease has ended."""
        if amount > self.need:
            self.need = amount
        if self.left < amount or now >= self.until:
            return False
        self.left -= amount
        return True

    def runs_out(self, now: float, soon: float) -> bool:
        """Return whether the spare room is used up, or ends by `soon`."""
        if now >= self.until:
            return False
        return self.left > 0 if self.until <= soon else self.left < self.need < self.size

    def renew_for(self, requests: int) -> int:
        """Return the size of a lease that replaces this one before its end."""
        if self.left >= self.need:
            self.spare = self.size - self.left
        elif self.size:
            self.spare = min(2 * self.spare, _MAX_SPARE)
        return self.spare_for(requests)

    def spare_for(self, requests: int) -> int:
        """Return the spare room of the next lease: the recent use, and at least the need of `requests` requests."""
        self.spare = max(self.spare, requests * self.need)
        self.need -= self.need // 8
        return self.spare


@dataclass(slots=True, eq=False)
class KeyLeases:
    """The leases of one key in this process. `principal` is as of its last ask.

    `mirror` counts the grants to this process in the last minute.
    """

    principal: Principal
    key_id: str = field(init=False)
    requests: LeasedRoom = field(default_factory=LeasedRoom)
    tokens: LeasedRoom = field(default_factory=LeasedRoom)
    mirror: KeyLimits = field(default_factory=lambda: KeyLimits(0, 0))
    refunds: dict[tuple[Dimension, float], int] = field(default_factory=dict)
    charges: list[Posting] = field(default_factory=list)
    usage: KeyUsage | None = None
    usage_at: float = 0.0
    used_at: float = 0.0
    is_asking: bool = False
    _denied: dict[str, Denied] = field(default_factory=dict)
    _denied_at: float = 0.0

    def __post_init__(self) -> None:
        self.key_id = self.principal.key_id

    def accept(self, lease: Lease, requests: int, tokens: int, until: float, now: float) -> Granted:
        """Add a lease; use `requests` and `tokens` of it at once, and keep the rest until `until`."""
        granted = Granted(lease.at)
        if lease.requests:
            self._keep("requests", lease.requests, requests, granted, until, now)
        if lease.tokens:
            self._keep("tokens", lease.tokens, tokens, granted, until, now)
        return granted

    def refund(self, dimension: Dimension, at: float, amount: int) -> None:
        """Note a refund of a charge at `at`."""
        place = (dimension, at)
        self.refunds[place] = self.refunds.get(place, 0) + amount
        self._denied.pop(dimension, None)

    def grow(self, held: LeasedRoom, now: float) -> None:
        """Enlarge the next lease if the last one was used up before its end."""
        if held.size and not held.left and now < held.until:
            held.spare = min(2 * held.spare, _MAX_SPARE)

    def release(self, dimension: Dimension) -> None:
        """Refund the rest of a lease."""
        held = self._held(dimension)
        if held.left:
            self.refund(dimension, held.granted.at, held.left)
            held.left = 0

    def expire(self, now: float) -> bool:
        """Refund the rest of ended leases, and expect the same use next time; return whether all have ended."""
        is_over = True
        for dimension in DIMENSIONS:
            held = self._held(dimension)
            if not held.left:
                continue
            if now < held.until:
                is_over = False
                continue
            held.spare = held.size - held.left
            self.release(dimension)
        return is_over

    def remember(self, denied: Denied, now: float) -> None:
        """Remember a denial for `DENIAL_S`."""
        self._denied_at = now
        self._denied[denied.dimension] = denied

    def recall(self, requests: int, tokens: int, now: float) -> Denied | None:
        """Return a remembered denial of this amount, with the remaining wait; None if there is none."""
        elapsed = now - self._denied_at
        if elapsed >= DENIAL_S:
            return None
        denied = self._denied.get("requests" if requests else "tokens")
        if denied is None or requests + tokens < denied.requested:
            return None
        wait_s = denied.retry_after_s
        if wait_s is None or wait_s <= elapsed:
            return None
        return Denied(denied.dimension, denied.limit, denied.used, requests + tokens, wait_s - elapsed)

    def take_postings(self, now_at: float) -> tuple[list[Posting], list[Posting]]:
        """Return and clear the refunds and charges to report."""
        refunds = []
        for (dimension, at), amount in self.refunds.items():
            if self.mirror.window(dimension).refund(at, amount, now_at):
                refunds.append(Posting(self.key_id, dimension, at, amount))
        self.refunds.clear()
        charges, self.charges = self.charges, []
        return refunds, charges

    def take_alone(self, requests: int, tokens: int, now_at: float, limits: tuple[int, int]) -> Granted | Shortage:
        """Decide without the gatekeeper, within this process's own `limits` (requests and tokens per minute)."""
        self.mirror.requests_per_minute, self.mirror.tokens_per_minute = limits
        taken = self.mirror.take(now_at, now_at, requests=requests, tokens=tokens)
        if isinstance(taken, Shortage):
            return taken
        charged = zip(DIMENSIONS, taken, strict=True)
        self.charges += [Posting(self.key_id, dimension, now_at, amount) for dimension, amount in charged if amount]
        return Granted(now_at)

    def charge(self, at: float, tokens: int) -> None:
        """Note tokens that were used beyond their reservation."""
        self.mirror.tokens.charge(at, tokens)
        self.charges.append(Posting(self.key_id, "tokens", at, tokens))

    def granted_after(self, at: float, now_at: float) -> list[Posting]:
        """Return the grants after `at` that were not refunded; this clears the refunds and charges to report."""
        self.take_postings(now_at)
        return [
            Posting(self.key_id, dimension, charged_at, amount)
            for dimension in DIMENSIONS
            for charged_at, amount in self.mirror.window(dimension).entries()
            if charged_at > at
        ]

    def quota(self, principal: Principal, now: float) -> Quota:
        """Return the room left in the minute, from the last usage and the leases."""
        used_requests, reset_requests_s, used_tokens, reset_tokens_s = self.usage or (0, 0.0, 0, 0.0)
        elapsed = now - self.usage_at
        if elapsed >= reset_requests_s:
            used_requests, reset_requests_s = 0, elapsed
        if elapsed >= reset_tokens_s:
            used_tokens, reset_tokens_s = 0, elapsed
        if now < self.requests.until:
            used_requests -= self.requests.left
        if now < self.tokens.until:
            used_tokens -= self.tokens.left
        for (dimension, _), amount in self.refunds.items():
            if dimension == "requests":
                used_requests -= amount
            else:
                used_tokens -= amount
        limit_requests, limit_tokens = principal.requests_per_minute, principal.tokens_per_minute
        return Quota(
            limit_requests=limit_requests,
            remaining_requests=min(limit_requests, max(0, limit_requests - used_requests)),
            reset_requests_s=reset_requests_s - elapsed,
            limit_tokens=limit_tokens,
            remaining_tokens=min(limit_tokens, max(0, limit_tokens - used_tokens)),
            reset_tokens_s=reset_tokens_s - elapsed,
        )

    def is_idle(self, now: float, for_s: float) -> bool:
        """Return whether the key has no leases and nothing to report, and was not used for `for_s` seconds."""
        if self.refunds or self.charges or self.is_asking or self.requests.left or self.tokens.left:
            return False
        return now - self.used_at > for_s

    def _held(self, dimension: Dimension) -> LeasedRoom:
        return self.requests if dimension == "requests" else self.tokens

    def _keep(self, dimension: Dimension, amount: int, need: int, granted: Granted, until: float, now: float) -> None:
        window = self.mirror.window(dimension)
        window.expire(granted.at)
        window.charge(granted.at, amount)
        held = self._held(dimension)
        surplus = amount - need
        if surplus <= 0:
            if not held.left:
                # Used up at once: the next lease may be larger if it is asked for before this one ends.
                held.granted, held.until, held.size = granted, until, need
                held.spare = max(held.spare, need)
        elif held.left and held.granted.at == granted.at and now < held.until:
            held.left += surplus
            held.size += surplus
        else:
            self.release(dimension)
            held.left, held.size, held.until, held.granted = surplus, surplus, until, granted


class Leases:
    """The leases of all keys: those in `live` have room, those in `unreported` refunds or charges to report."""

    def __init__(self) -> None:
        self.live: set[KeyLeases] = set()
        self.unreported: set[KeyLeases] = set()
        self._keys: dict[str, KeyLeases] = {}

    def of(self, principal: Principal, now: float) -> KeyLeases:
        """Return the leases of a key."""
        leases = self._keys.get(principal.key_id)
        if leases is None:
            leases = self._keys[principal.key_id] = KeyLeases(principal, used_at=now)
        return leases

    def note_usage(self, usages: Mapping[str, KeyUsage], now: float) -> None:
        """Note how much of their minutes keys have used, as a reply of the gatekeeper has it."""
        for key_id, usage in usages.items():
            if leases := self._keys.get(key_id):
                leases.usage, leases.usage_at = usage, now

    def expire(self, now: float) -> None:
        """Refund the rest of leases that have ended."""
        for leases in [leases for leases in self.live if leases.expire(now)]:
            self.live.discard(leases)
            if leases.refunds:
                self.unreported.add(leases)

    def release_all(self) -> None:
        """Refund all leases."""
        for leases in self._keys.values():
            for dimension in DIMENSIONS:
                leases.release(dimension)
            if leases.refunds:
                self.unreported.add(leases)

    def take_postings(self, now_at: float) -> tuple[list[Posting], list[Posting]]:
        """Return and clear all refunds and charges to report."""
        refunds: list[Posting] = []
        charges: list[Posting] = []
        for leases in self.unreported:
            more_refunds, more_charges = leases.take_postings(now_at)
            refunds += more_refunds
            charges += more_charges
        self.unreported.clear()
        return refunds, charges

    def granted_after(self, at: float, now_at: float) -> list[Posting]:
        """Return all grants after `at` that were not refunded; this clears the refunds and charges to report."""
        self.unreported.clear()
        return [posting for leases in self._keys.values() for posting in leases.granted_after(at, now_at)]

    def forget(self, now: float, idle_s: float) -> None:
        """Drop keys that were not used for `idle_s` seconds."""
        self._keys = {key_id: leases for key_id, leases in self._keys.items() if not leases.is_idle(now, idle_s)}
