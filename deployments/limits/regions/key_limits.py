"""One key's minute in one of several regions: its own share, and its quota loans. Pure.

Borrowed room is already charged in the lender's share, so a lease from it is not charged here. A loan is used for
leases that end before it does. Times are on this gatekeeper's clock; `QuotaLoan.at` is on the lender's.
"""

from collections.abc import Iterable
from typing import NamedTuple

from deployments.limits.messages import Ask, KeyUsage
from deployments.limits.regions.loans import MAX_ASK_AGAIN_S, OtherRegion, QuotaLoan, RecentUse
from deployments.limits.window import (
    DIMENSIONS,
    EXACT_REQUESTS_PER_MINUTE,
    EXACT_TOKENS_PER_MINUTE,
    WINDOW_S,
    Dimension,
    KeyLimits,
    Share,
    Shortage,
    Window,
)

_CAUTION = 1.2
"""A region keeps this factor more of its share than it seems to want, because its use varies."""
FRESH_S = 0.25
"""Room that an ingress replica refunds within this time after the lease's end was never used."""


class Taken(NamedTuple):
    """The room of a lease, and how much of it was charged to the own share."""

    requests: int
    tokens: int
    own_requests: int
    own_tokens: int


class RegionKeyLimits(KeyLimits):
    """The limits of one key: `requests_per_minute` and `tokens_per_minute` are this region's share of `whole`.

    `others` are the other regions by name. `lent` counts the loans to them in the last minute. `loans` are still
    charged at a lender, `usable` are still valid, `owing` have room to return.
    """

    __slots__ = ("lent", "loans", "others", "owing", "recent", "usable", "used_loans", "whole")

    def __init__(self, others: Iterable[str]) -> None:
        super().__init__(0, 0)
        self.whole: dict[Dimension, int] = {"requests": 0, "tokens": 0}
        self.loans: list[QuotaLoan] = []
        self.usable: list[QuotaLoan] = []
        self.owing: set[QuotaLoan] = set()
        self.used_loans: dict[tuple[Dimension, float], list[tuple[QuotaLoan, int]]] = {}
        self.others = {region: OtherRegion() for region in others}
        self.recent = {dimension: RecentUse() for dimension in DIMENSIONS}
        self.lent = {dimension: Window() for dimension in DIMENSIONS}

    def set_whole(self, requests_per_minute: int, tokens_per_minute: int, share: Share) -> None:
        """Set the limits of the key over all regions."""
        self.whole = {"requests": requests_per_minute, "tokens": tokens_per_minute}
        self.requests_per_minute = share.of(requests_per_minute)
        self.tokens_per_minute = share.of(tokens_per_minute)

    def share(self, dimension: Dimension) -> int:
        """Return this region's share of the limit."""
        return self.requests_per_minute if dimension == "requests" else self.tokens_per_minute

    def own_room(self, dimension: Dimension, now: float) -> int:
        """Return the room left in the own share; negative if requests used more than they had reserved."""
        window = self.window(dimension)
        window.expire(now)
        return self.share(dimension) - window.used

    def borrowed_room(self, dimension: Dimension, until: float) -> int:
        """Return the room left in the loans that last until then."""
        return sum(loan.left[dimension] for loan in self.usable if loan.until >= until)

    def take_up_to(self, ask: Ask, now: float, at: float, num_clients: int) -> Taken | Shortage:
        """Take the requests and tokens of an ask, or neither, for a lease that ends at `at`. Loans are used first.

        Spare room is given as in `KeyLimits.take`, from the own share and the loans.
        """
        wanted: list[tuple[Dimension, int, int]] = []
        spares = (ask.spare_requests, EXACT_REQUESTS_PER_MINUTE), (ask.spare_tokens, EXACT_TOKENS_PER_MINUTE)
        needs = ask.requests, ask.tokens
        for dimension, need, (spare, exact) in zip(DIMENSIONS, needs, spares, strict=True):
            room = self.own_room(dimension, now) + self.borrowed_room(dimension, at)
            if need and need > room:
                self.recent[dimension].add(need, now)
                for other in self.others.values():
                    other.need[dimension] = min(other.need[dimension] + need, self.whole[dimension])
                return self._shortage(dimension, need, now, room)
            extra = 0
            if spare and self.whole[dimension] > exact:
                extra = max(0, min(spare, (room - need) // (2 * num_clients)))
            wanted.append((dimension, need + extra, need))
        owns = [self._take(dimension, amount, now, at) for dimension, amount, _ in wanted]
        return Taken(wanted[0][1], wanted[1][1], *owns)

    def refund_loans(self, dimension: Dimension, at: float, amount: int, now: float) -> int:
        """Give up to `amount` of a lease that ends at `at` back to its loans; return how much came from loans."""
        parts = self.used_loans.get((dimension, at))
        rest = amount
        while parts and rest:
            loan, used = parts.pop()
            back = min(used, rest)
            rest -= back
            if now < loan.until:
                loan.left[dimension] += back
            else:
                loan.owed[dimension] += back
                self.owing.add(loan)
            if used > back:
                parts.append((loan, used - back))
        return amount - rest

    def cover_excess(self, now: float) -> list[tuple[Dimension, float, int]]:
        """Cover use beyond the own share with loans; return the charges that leave the own windows.

        A loan covers only charges that expire before the lender's charge for it.
        """
        covered = []
        for dimension in DIMENSIONS:
            window = self.window(dimension)
            for loan in self.usable:
                excess = min(-self.own_room(dimension, now), loan.left[dimension])
                for at, amount in reversed(window.entries() if excess > 0 and now < loan.until else []):
                    part = min(amount, excess)
                    if part > 0 and at <= loan.until:
                        window.refund(at, part, now)
                        loan.left[dimension] -= part
                        excess -= part
                        covered.append((dimension, at, part))
        return covered

    def lendable(self, dimension: Dimension, now: float) -> int:
        """Return the room that the own share can lend: beyond the expected use of the next seconds, and of the minute.

        An expected use of less than a hundredth of the share, mostly the rest of an earlier one, holds nothing back.
        """
        self.lent[dimension].expire(now)
        room, used = self.own_room(dimension, now), self.window(dimension).used - self.lent[dimension].used
        recent = self.recent[dimension]
        expected = recent.expected(now)
        if expected * 100 < self.share(dimension):
            return room
        return room - max(expected, round(_CAUTION * recent.expected_in_minute(now)) - used)

    def wants(self, region: str, dimension: Dimension, now: float) -> int:
        """Return how much this region wants to borrow from another, 0 or less for nothing."""
        room = self.own_room(dimension, now) + self.borrowed_room(dimension, now)
        expected = self.recent[dimension].expected(now)
        return min(self.whole[dimension], self.others[region].need[dimension] + expected - room)

    def end_loans(self, now: float) -> None:
        """Owe the rest of loans that have ended."""
        for loan in [loan for loan in self.usable if now >= loan.until]:
            self.usable.remove(loan)
            for dimension in DIMENSIONS:
                if loan.left[dimension]:
                    loan.owed[dimension] += loan.left[dimension]
                    loan.left[dimension] = 0
                    self.owing.add(loan)

    def take_owed(self, region: str) -> list[tuple[Dimension, float, int]]:
        """Return and clear the debts to a region: a dimension, the loan's `at` and the amount."""
        owed = []
        for loan in [loan for loan in self.owing if loan.region == region]:
            self.owing.discard(loan)
            for dimension, amount in loan.owed.items():
                if amount:
                    owed.append((dimension, loan.at, amount))
                    loan.held[dimension] -= amount
                    loan.owed[dimension] = 0
        return owed

    def forget(self, now: float) -> None:
        """Drop the loans that neither this region nor the lender counts any more."""
        self.loans = [loan for loan in self.loans if now < loan.until + WINDOW_S]
        for place in [place for place in self.used_loans if place[1] + WINDOW_S <= now]:
            del self.used_loans[place]

    def usage(self, now: float, away: set[str]) -> KeyUsage:
        """Return how much of the whole limits is used, as far as this region knows.

        The whole share of an unreachable region counts as used.
        """
        values: list[float] = []
        for dimension in DIMENSIONS:
            window = self.window(dimension)
            used, reset_s = window.used, window.reset_s(now)
            others_share = (self.whole[dimension] - self.share(dimension)) // max(1, len(self.others))
            for region, other in self.others.items():
                theirs, left_s = (others_share, 0.0) if region in away else other.used(dimension, now)
                used += theirs
                reset_s = max(reset_s, left_s)
            used -= self.borrowed_room(dimension, now)
            values += [max(0, min(used, self.whole[dimension])), reset_s]
        return KeyUsage(int(values[0]), values[1], int(values[2]), values[3])

    def _take(self, dimension: Dimension, amount: int, now: float, at: float) -> int:
        """Take an amount that fits; return how much of it is charged to the own share."""
        rest = amount
        for loan in self.usable if amount else ():
            part = min(rest, loan.left[dimension]) if loan.until >= at else 0
            if part:
                loan.left[dimension] -= part
                rest -= part
                self.used_loans.setdefault((dimension, at), []).append((loan, part))
        if rest:
            self.window(dimension).charge(at, rest)
        if amount:
            self.recent[dimension].add(amount, now)
        return rest

    def _shortage(self, dimension: Dimension, need: int, now: float, room: int) -> Shortage:
        waits = [other.fits_at[dimension] - now for other in self.others.values() if other.fits_at[dimension] > now]
        own_wait_s = self.window(dimension).wait_s(need, self.share(dimension), now)
        if own_wait_s is not None:
            waits.append(own_wait_s)
        whole = self.whole[dimension]
        return Shortage(dimension, whole, max(0, whole - max(0, room)), need, min(waits, default=MAX_ASK_AGAIN_S))
