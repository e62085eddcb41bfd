"""What an ingress replica holds of one key's minute: leases, refunds to report, and the last standing.

`GatekeeperClient` takes from it, and `SyncLoop` fills it and reports its refunds and charges. Times named `at` are on
the gatekeeper's clock, all others on this process's monotonic clock. Nothing here waits.
"""

from deployments.limits.contract import Denied, Granted, Quota
from deployments.limits.messages import Lease, Posting, Standing
from deployments.limits.window import Dimension, KeyLimits, Shortage
from deployments.state.identity.principal import Principal

# A refusal is remembered this long; room that other replicas refund is not seen before.
DENIAL_S = 0.25

_MAX_SPARE = 1_000_000_000


class LeasedRoom:
    """What is left of a lease in one dimension, usable until `until`.

    `spare` is what the next lease should hold beyond the need. `need` is the most that a single recent request needed;
    each new lease lowers it by an eighth.
    """

    __slots__ = ("granted", "left", "need", "size", "spare", "until")

    def __init__(self) -> None:
        self.left = 0
        self.size = 0
        self.spare = 0
        self.need = 0
        self.until = 0.0
        self.granted = Granted()

    def take(self, amount: int, now: float) -> bool:
        """Take an amount out of the lease; return False if too little is left, or the lease has ended."""
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
        """Return the spare room of the next lease: what was used lately, and at least what `requests` need."""
        self.spare = max(self.spare, requests * self.need)
        self.need -= self.need // 8
        return self.spare


class KeyLeases:
    """The leases of one key in this process; `principal` is as of its last ask.

    `mirror` counts what this process was granted in the last minute.
    """

    __slots__ = (
        "_denied",
        "_denied_at",
        "charges",
        "is_asking",
        "key_id",
        "mirror",
        "principal",
        "refunds",
        "requests",
        "standing",
        "standing_at",
        "tokens",
        "used_at",
    )

    def __init__(self, principal: Principal) -> None:
        self.key_id = principal.key_id
        self.principal = principal
        self.requests = LeasedRoom()
        self.tokens = LeasedRoom()
        self.mirror = KeyLimits(0, 0)
        self.refunds: dict[tuple[Dimension, float], int] = {}
        self.charges: list[Posting] = []
        self.standing: Standing | None = None
        self.standing_at = 0.0
        self.used_at = 0.0
        self.is_asking = False
        self._denied: dict[str, Denied] = {}
        self._denied_at = 0.0

    def accept(self, lease: Lease, requests: int, tokens: int, until: float, now: float) -> Granted:
        """Add a lease of which `requests` and `tokens` are used at once; keep the rest until `until`."""
        granted = Granted(lease.at)
        if lease.requests:
            self._keep("requests", lease.requests, requests, granted, until, now)
        if lease.tokens:
            self._keep("tokens", lease.tokens, tokens, granted, until, now)
        return granted

    def refund(self, dimension: Dimension, at: float, amount: int) -> None:
        """Note a refund of what was charged at `at`."""
        place = (dimension, at)
        self.refunds[place] = self.refunds.get(place, 0) + amount
        self._denied.pop(dimension, None)

    def grow(self, held: LeasedRoom, now: float) -> None:
        """Enlarge the next lease if the last one was used up before its end."""
        if held.size and not held.left and now < held.until:
            held.spare = min(2 * held.spare, _MAX_SPARE)

    def release(self, dimension: Dimension) -> None:
        """Refund what is left of a lease."""
        held = self._held(dimension)
        if held.left:
            self.refund(dimension, held.granted.at, held.left)
            held.left = 0

    def expire(self, now: float) -> bool:
        """Refund what ended leases did not use, and expect the same use next time; return whether all have ended."""
        is_over = True
        dimension: Dimension
        for dimension in ("requests", "tokens"):
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
        """Remember a refusal for a moment."""
        self._denied_at = now
        self._denied[denied.dimension] = denied

    def recall(self, requests: int, tokens: int, now: float) -> Denied | None:
        """Return the remembered refusal of this much, with the remaining wait; None if there is none."""
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
        if requests:
            self.charges.append(Posting(self.key_id, "requests", now_at, requests))
        if tokens:
            self.charges.append(Posting(self.key_id, "tokens", now_at, tokens))
        return Granted(now_at)

    def charge(self, at: float, tokens: int) -> None:
        """Note tokens that were used beyond their reservation."""
        self.mirror.tokens.charge(at, tokens)
        self.charges.append(Posting(self.key_id, "tokens", at, tokens))

    def granted_after(self, at: float, now_at: float) -> list[Posting]:
        """Return what was granted after `at` and not refunded; this clears the refunds and charges to report."""
        self.take_postings(now_at)
        postings = [Posting(self.key_id, "requests", t, a) for t, a in self.mirror.requests.entries() if t > at]
        return postings + [Posting(self.key_id, "tokens", t, a) for t, a in self.mirror.tokens.entries() if t > at]

    def quota(self, principal: Principal, now: float) -> Quota:
        """Return what is left of the minute, from the last standing and the leases."""
        used_requests, reset_requests_s, used_tokens, reset_tokens_s = self.standing or (0, 0.0, 0, 0.0)
        elapsed = now - self.standing_at
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
        """Return whether nothing is leased or unreported, and the key was not used for `for_s` seconds."""
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
