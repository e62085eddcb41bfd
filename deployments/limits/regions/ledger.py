"""The gatekeeper's account with several regions: a share of every limit, with quota loans from and to the others.

`RegionCore` changes it. The journal has only charges to the own share: a restart loses loans, which end by themselves
and count as used at their lenders.
"""

from typing import Any

from deployments.limits.ledger import Journal, Ledger
from deployments.limits.messages import Ask, KeyUsage, Lease, Posting
from deployments.limits.regions.key_limits import FRESH_S, RegionKeyLimits
from deployments.limits.regions.loans import QuotaLoan
from deployments.limits.regions.messages import LoanAsk, LoanGrant
from deployments.limits.window import DIMENSIONS, WINDOW_S, Share, Shortage


class RegionLedger(Ledger):
    """The ledger of one region. `others` are the names of the other regions, `away` those that do not answer.

    `indebted` are the keys with loans. `lent_at` has the time of each key's last loan to others, in that order. For
    each other region, `short` has the keys that may want its room, `unsent` the keys whose usage it does not know yet.
    """

    _keys: dict[str, RegionKeyLimits]  # type: ignore[assignment]  # `_new` makes no others.

    def __init__(self, share: Share, others: frozenset[str], journal: Journal | None = None) -> None:
        super().__init__(journal)
        self.share = share
        self.others = others
        self.away = set(others)
        self.short: dict[str, set[str]] = {region: set() for region in others}
        self.indebted: set[str] = set()
        self.lent_at: dict[str, float] = {}
        self.unsent: dict[str, set[str]] = {region: set() for region in others}

    def set_limits(self, key_id: str, requests_per_minute: int, tokens_per_minute: int) -> None:
        """Set the limits of a key over all regions."""
        self._of(key_id).set_whole(requests_per_minute, tokens_per_minute, self.share)

    def take(self, ask: Ask, now: float, valid_s: float, num_clients: int) -> Lease | Shortage:
        """Return a lease that covers the ask, or the shortage, under the limits over all regions."""
        limits = self._keys[ask.key_id]
        at = now + valid_s
        taken = limits.take_up_to(ask, now, at, num_clients)
        for region, short in self.short.items():
            if any(limits.wants(region, dimension, now) > 0 for dimension in DIMENSIONS):
                short.add(ask.key_id)
        if isinstance(taken, Shortage):
            return taken
        if taken.own_requests:
            self._note(Posting(ask.key_id, "requests", at, taken.own_requests))
        if taken.own_tokens:
            self._note(Posting(ask.key_id, "tokens", at, taken.own_tokens))
        self._touch(ask.key_id)
        return Lease(at, taken.requests, taken.tokens)

    def refund(self, posting: Posting, now: float) -> None:
        """Refund an unused charge, unless its minute is over. The part from loans goes back to the loans first."""
        key_id, dimension, at, amount = posting
        limits = self._keys.get(key_id)
        if limits is None:
            return
        if at + FRESH_S > now:
            limits.recent[dimension].add(-amount, now)
        rest = amount - limits.refund_loans(dimension, at, amount, now)
        if rest < amount:
            self.indebted.add(key_id)
        if rest:
            super().refund(posting._replace(amount=rest), now)
        self._touch(key_id)

    def charge(self, posting: Posting) -> None:
        """Charge use without a lease, even beyond the own share. A loan then covers the excess."""
        super().charge(posting)
        limits = self._keys[posting.key_id]
        if limits.window(posting.dimension).used > limits.share(posting.dimension):
            for short in self.short.values():
                short.add(posting.key_id)
        self._touch(posting.key_id)

    def accept(self, lent: LoanGrant, region: str, until: float, now: float) -> None:
        """Add a loan, usable until then."""
        limits = self._of(lent.key_id)
        loan = QuotaLoan(region, lent.at, until, lent.requests, lent.tokens)
        limits.loans.append(loan)
        limits.usable.append(loan)
        limits.end_loans(now)
        self.indebted.add(lent.key_id)
        for dimension, at, amount in limits.cover_excess(now):
            self._note(Posting(lent.key_id, dimension, at, -amount))

    def lend(self, ask: LoanAsk, region: str, now: float, at: float) -> tuple[LoanGrant, list[Posting]]:
        """Return a loan to another region, charged at `at`, and unused room of that region's own loans.

        Room that this region is about to use is not lent (see `RegionKeyLimits.lendable`).
        """
        limits = self._keys[ask.key_id]
        amounts: list[int] = []
        waits: list[float] = []
        returned: list[Posting] = []
        for dimension, asked in zip(DIMENSIONS, (ask.requests, ask.tokens), strict=True):
            rest = max(0, asked)
            for loan in limits.usable:
                back = min(rest, loan.left[dimension]) if loan.region == region and now < loan.until else 0
                if back:
                    loan.left[dimension] -= back
                    loan.held[dimension] -= back
                    rest -= back
                    returned.append(Posting(ask.key_id, dimension, loan.at, back))
            amount = max(0, min(rest, limits.lendable(dimension, now)))
            if amount:
                limits.window(dimension).charge(at, amount)
                limits.lent[dimension].charge(at, amount)
                self._note(Posting(ask.key_id, dimension, at, amount))
            amounts.append(amount)
            missing, share = rest - amount, limits.share(dimension)
            wait_s = limits.window(dimension).wait_s(min(missing, share), share, now) if missing else 0.0
            waits.append((WINDOW_S if wait_s is None else wait_s) if share else WINDOW_S)
        if any(amounts):
            self.lent_at.pop(ask.key_id, None)
            self.lent_at[ask.key_id] = now
        return LoanGrant(ask.key_id, at, *amounts, *waits), returned

    def refund_lent(self, posting: Posting, now: float) -> None:
        """Refund unused room of a loan to another region."""
        limits = self._keys.get(posting.key_id)
        if limits is not None:
            limits.lent[posting.dimension].refund(posting.at, posting.amount, now)
            super().refund(posting, now)

    def lent_since(self, at: float, now: float) -> dict[str, KeyUsage]:
        """Return the loans to other regions in the last minute, for each key with a loan since `at`."""
        lent = {}
        for key_id, lent_at in reversed(self.lent_at.items()):
            if lent_at < at:
                break
            if key_id in self._keys:
                requests, tokens = (self._keys[key_id].lent[dimension] for dimension in DIMENSIONS)
                lent[key_id] = KeyUsage(requests.used, requests.reset_s(now), tokens.used, tokens.reset_s(now))
        return lent

    def take_asks(self, region: str, now: float, limit: int) -> list[LoanAsk]:
        """Return the asks to a region, for up to `limit` keys; this resets the `need` of those keys."""
        asks = []
        for key_id in list(self.short[region])[:limit]:
            limits = self._keys.get(key_id)
            if limits is None:
                self.short[region].discard(key_id)
                continue
            other = limits.others[region]
            wanted = dict.fromkeys(DIMENSIONS, 0)
            is_early = False
            for dimension in DIMENSIONS:
                want = limits.wants(region, dimension, now)
                if want > 0 and other.ask_at[dimension] > now:
                    is_early = True
                elif want > 0:
                    wanted[dimension] = want
                    other.need[dimension] = 0
            if any(wanted.values()):
                asks.append(LoanAsk(key_id, wanted["requests"], wanted["tokens"]))
            if not is_early:
                self.short[region].discard(key_id)
        return asks

    def is_due(self, region: str, now: float) -> bool:
        """Return whether any key needs room of a region, and may ask for it now."""
        return any(
            limits.others[region].ask_at[dimension] <= now and limits.wants(region, dimension, now) > 0
            for key_id in self.short[region]
            if (limits := self._keys.get(key_id)) is not None
            for dimension in DIMENSIONS
        )

    def take_owed(self, region: str, now: float, limit: int) -> list[Posting]:
        """Return and clear the debts to a region, about `limit` postings at most."""
        owed: list[Posting] = []
        for key_id in list(self.indebted):
            if len(owed) >= limit:
                break
            limits = self._keys.get(key_id)
            if limits is None:
                self.indebted.discard(key_id)
                continue
            limits.end_loans(now)
            owed += [Posting(key_id, dimension, at, amount) for dimension, at, amount in limits.take_owed(region)]
            if not limits.usable and not limits.owing:
                self.indebted.discard(key_id)
        return owed

    def received_after(self, region: str, at: float) -> list[Posting]:
        """Return the loans of a region after `at` on its own clock, less refunds."""
        return [
            Posting(key_id, dimension, loan.at, loan.held[dimension])
            for key_id, limits in self._keys.items()
            for loan in limits.loans
            for dimension in DIMENSIONS
            if loan.region == region and loan.at > at and loan.held[dimension] > 0
        ]

    def note_usage(self, region: str, key_id: str, usage: KeyUsage, now: float) -> None:
        """Note the usage of a key in another region, if the key is in use here."""
        limits = self._keys.get(key_id)
        if limits is not None:
            limits.others[region].usage, limits.others[region].usage_at = usage, now

    def take_unsent(self, region: str, now: float, limit: int) -> dict[str, KeyUsage]:
        """Return the usage of this region's share, for up to `limit` keys that were used since the last call."""
        unsent = self.unsent[region]
        usage = {}
        for key_id in list(unsent)[:limit]:
            unsent.discard(key_id)
            own = super().usage(key_id, now)
            if own is not None:
                usage[key_id] = own
        return usage

    def usage(self, key_id: str, now: float) -> KeyUsage | None:
        """Return the usage of a key over all regions, as far as this one knows."""
        limits = self._keys.get(key_id)
        return None if limits is None else limits.usage(now, self.away)

    def limits(self, key_id: str) -> RegionKeyLimits | None:
        """Return the limits of a key; None if it has none here."""
        return self._keys.get(key_id)

    def summary(self, now: float, num_keys: int) -> dict[str, Any]:
        """Return the loans of the last minute over all keys, and the shares of the most used keys, as JSON."""
        total = {"lent": dict.fromkeys(DIMENSIONS, 0), "borrowed": dict.fromkeys(DIMENSIONS, 0)}
        keys = []
        for key_id, limits in self._keys.items():
            shares: dict[str, Any] = {"key_id": key_id}
            busy = 0.0
            for dimension in DIMENSIONS:
                limits.lent[dimension].expire(now)
                lent = limits.lent[dimension].used
                borrowed = sum(loan.held[dimension] for loan in limits.loans if now < loan.until + WINDOW_S)
                total["lent"][dimension] += lent
                total["borrowed"][dimension] += borrowed
                share = limits.share(dimension)
                used = share - limits.own_room(dimension, now) - lent + borrowed
                whole = limits.whole[dimension]
                shares[dimension] = {"limit": whole, "share": share, "used": used, "lent": lent, "borrowed": borrowed}
                busy = max(busy, used / max(1, whole))
            keys.append((busy, shares))
        keys.sort(key=lambda one: one[0], reverse=True)
        return {**total, "keys": [shares for _, shares in keys[:num_keys]]}

    def forget_idle(self, now: float) -> None:
        """Drop the keys without charges and loans."""
        for limits in self._keys.values():
            limits.forget(now)
        kept = {key_id: limits for key_id, limits in self._keys.items() if limits.loans}
        super().forget_idle(now)
        self._keys.update(kept)
        self.lent_at = {key_id: at for key_id, at in self.lent_at.items() if key_id in self._keys}

    def _new(self) -> RegionKeyLimits:
        return RegionKeyLimits(self.others)

    def _of(self, key_id: str) -> RegionKeyLimits:
        self._limits_of(key_id)
        return self._keys[key_id]

    def _touch(self, key_id: str) -> None:
        for unsent in self.unsent.values():
            unsent.add(key_id)
