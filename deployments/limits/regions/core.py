"""The gatekeeper's core with several regions: it also exchanges quota loans with the other gatekeepers.

`RegionLink` calls `next_request` and `take_reply` from a thread for each other region, and `lend` answers the requests
of other regions. One request to a region is under way at a time.
"""

import logging
import secrets
from collections.abc import Callable
from typing import Any

from deployments.limits.core import GatekeeperCore, Keyring
from deployments.limits.ledger import Journal
from deployments.limits.messages import Answer, Ask, KeyUsage, PendingLoan, Posting, SyncRequest
from deployments.limits.regions.ledger import RegionLedger
from deployments.limits.regions.messages import MAX_ASKS, Borrower, Exchange, LoanGrant, LoanReply, LoanRequest
from deployments.limits.window import DIMENSIONS, Shortage
from deployments.patience import USUAL, Patience

logger = logging.getLogger(__name__)

MARGIN_S = 0.25
"""A loan is charged this much after its end: clocks differ in speed, and entries of a window merge."""
_LOAN_S = 1.5
"""How long a loan can be used, beyond the leases from it and its way here."""
_MAX_LOAN_S = 12.0
_DRY_GRACE_S = 0.25
_MAX_BORROWERS = 256


class RegionCore(GatekeeperCore):
    """The core of the region `name`; `wake` is called when another region should be asked soon."""

    ledger: RegionLedger

    def __init__(
        self,
        name: str,
        keyring: Keyring,
        ledger: RegionLedger,
        clock: Callable[[], float],
        *,
        journal: Journal | None = None,
        lost_since: float | None = None,
        patience: Patience = USUAL,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(keyring, ledger, clock, journal=journal, lost_since=lost_since, patience=patience)
        now = clock()
        self.name = name
        self.wake = wake
        self.epoch = secrets.token_hex(8)
        self.exchanges = {region: Exchange(now) for region in sorted(ledger.others)}
        self._regions = sorted({name, *ledger.others})
        self._valid_s = 0.0
        self._borrowers: dict[str, Borrower] = {}
        if lost_since is not None:
            self._recovering_until = now + 2 * patience.recovery_s  # The other regions report their loans too.
            for exchange in self.exchanges.values():
                exchange.replay_after = lost_since

    def next_request(self, region: str) -> LoanRequest:
        """Return the next request to a region: an unanswered one again, or all news for it."""
        with self.lock:
            now = self.clock()
            exchange = self.exchanges[region]
            request = exchange.unanswered
            if request is None or exchange.is_refused:
                exchange.sent_at = now
            if request is None:
                request = self._gather(region, exchange, now)
            elif not exchange.is_refused:
                request = request._replace(asks=[])  # Too old; their answer may still come.
            exchange.is_refused = False
            exchange.unanswered = request = request._replace(lender=exchange.lender)
            exchange.trying_since = now
            return request

    def take_reply(self, region: str, request: LoanRequest, reply: LoanReply) -> None:
        """Apply a region's reply to the last result of `next_request`."""
        with self.lock:
            now = self.clock()
            exchange = self.exchanges[region]
            if reply.problem is not None:
                self._count_away(region, reply.problem, now)
                return
            if exchange.unanswered is None or exchange.unanswered.serial != request.serial:
                return
            exchange.lender = reply.lender
            exchange.is_refused = reply.is_stale
            if reply.is_stale:
                exchange.trying_since = None
                return
            if exchange.trying_since is not None:
                last_s = now - exchange.trying_since
                exchange.round_trip_s = max(last_s, 0.8 * exchange.round_trip_s + 0.2 * last_s)
            exchange.unanswered = exchange.trying_since = None
            if exchange.away_since is not None:
                logger.info("Region %s exchanges limits again.", region)
                exchange.away_since = None
                self.ledger.away.discard(region)
            self._apply_reply(region, exchange, request, reply, now)
            if self._journal is not None:
                self._journal.flush()

    def fail(self, region: str, reason: str) -> None:
        """Count a region as away: it did not answer the last result of `next_request`."""
        with self.lock:
            self._count_away(region, reason, self.clock())

    def lend(self, request: LoanRequest) -> LoanReply:
        """Return the reply to another region's request."""
        with self.lock:
            problem = self._problem(request)
            if problem is not None:
                return LoanReply(self.epoch, [], [], [], problem=problem)
            if request.lender != self.epoch:
                return LoanReply(self.epoch, [], [], [], is_stale=True)
            borrower = self._borrowers.pop(request.borrower, None) or Borrower()
            self._borrowers[request.borrower] = borrower  # The most recent is last.
            while len(self._borrowers) > _MAX_BORROWERS:
                del self._borrowers[next(iter(self._borrowers))]
            if request.serial <= borrower.serial:
                is_last = borrower.reply is not None and request.serial == borrower.serial
                return borrower.reply if is_last and borrower.reply else LoanReply(self.epoch, [], [], [])
            borrower.serial = request.serial
            borrower.reply = reply = self._lend(request, self.clock())
            if self._journal is not None:
                if request.refunds or reply.lent:
                    self._journal.note_serial(request.borrower, request.serial)
                self._journal.flush()
            return reply

    def is_short(self, region: str) -> bool:
        """Return whether a region should be asked soon."""
        with self.lock:
            exchange = self.exchanges[region]
            is_owed = exchange.is_refused or exchange.replay_after is not None
            return is_owed or self.ledger.is_due(region, self.clock())

    def shares(self, num_keys: int = 5) -> dict[str, Any]:
        """Return the other regions, and the shares of the keys that used most of their minute, as JSON."""
        with self.lock:
            now = self.clock()
            others = {
                region: {
                    "away_s": None if one.away_since is None else max(0.0, now - one.away_since),
                    "round_trip_s": one.round_trip_s,
                }
                for region, one in self.exchanges.items()
            }
            return {"region": self.name, "others": others, **self.ledger.summary(now, num_keys)}

    def serials(self) -> dict[str, int]:
        """Return the last serial applied for each client, and for each borrower."""
        return super().serials() | {name: one.serial for name, one in self._borrowers.items()}

    def restore_serials(self, serials: dict[str, int]) -> None:
        """Continue from the serials that a journal holds."""
        super().restore_serials({name: serial for name, serial in serials.items() if ":" not in name})
        self._borrowers = {name: Borrower(serial) for name, serial in serials.items() if ":" in name}

    def _gather(self, region: str, exchange: Exchange, now: float) -> LoanRequest:
        ledger = self.ledger
        refunds = ledger.take_owed(region, now, MAX_ASKS)
        valid_s = min(_LOAN_S + 2 * self._valid_s + exchange.round_trip_s, _MAX_LOAN_S)
        return LoanRequest(
            self._regions,
            self.name,
            f"{self.name}:{self.epoch}",
            exchange.lender,
            next(exchange.serials),
            valid_s,
            ledger.take_asks(region, now, MAX_ASKS),
            refunds,
            ledger.take_unsent(region, now, MAX_ASKS),
            exchange.replay_after,
        )

    def _apply_reply(self, region: str, exchange: Exchange, request: LoanRequest, reply: LoanReply, now: float) -> None:
        for posting in reply.replayed:
            self._charge(posting)
        if request.replay_after is not None:
            exchange.replay_after = None
        returned: dict[tuple[str, str], int] = {}
        for posting in reply.returned:
            self.ledger.refund_lent(posting, now)
            place = (posting.key_id, posting.dimension)
            returned[place] = returned.get(place, 0) + posting.amount
        asks = {ask.key_id: ask for ask in request.asks}
        grace_s = exchange.round_trip_s + _DRY_GRACE_S
        for lent in reply.lent:
            self.ledger.accept(lent, region, exchange.sent_at + request.valid_s, now)
            limits, ask = self.ledger.limits(lent.key_id), asks.get(lent.key_id)
            if limits is None or ask is None:
                continue
            answers = (ask.requests, lent.requests, lent.wait_requests_s), (ask.tokens, lent.tokens, lent.wait_tokens_s)
            for dimension, (asked, got, wait_s) in zip(DIMENSIONS, answers, strict=True):
                if got + returned.get((lent.key_id, dimension), 0) < asked:
                    limits.others[region].note_answer(dimension, wait_s, now, grace_s)

    def _charge(self, posting: Posting) -> None:
        self.ledger.charge(posting)
        self._set_limits(posting.key_id)

    def _count_away(self, region: str, reason: str, now: float) -> None:
        exchange = self.exchanges[region]
        exchange.trying_since = None
        if exchange.away_since is None:
            exchange.away_since = now
            logger.warning("Region %s exchanges no limits, each region keeps to its share: %s", region, reason)
        self.ledger.away.add(region)

    def _problem(self, request: LoanRequest) -> str | None:
        if request.region not in self.exchanges or request.regions != self._regions:
            return f"{self.name} knows the regions {', '.join(self._regions)}; the configurations differ."
        if not 0 <= request.valid_s <= _MAX_LOAN_S:
            return f"Loans last {_MAX_LOAN_S:.0f} seconds at most."
        return None

    def _lend(self, request: LoanRequest, now: float) -> LoanReply:
        ledger, region = self.ledger, request.region
        if now >= self._recovering_until:  # Until then charges may be unknown.
            for posting in request.refunds:
                ledger.refund_lent(posting, now)
        at = now + request.valid_s + MARGIN_S
        lent: list[LoanGrant] = []
        returned: list[Posting] = []
        for ask in request.asks if not self._waits_for_clients(now) else []:
            if ledger.knows(ask.key_id) or self._set_limits(ask.key_id):
                loan, back = ledger.lend(ask, region, now, at)
                lent.append(loan)
                returned += back
        for key_id, usage in request.usage.items():
            ledger.note_usage(region, key_id, usage, now)
        after = request.replay_after
        replayed = [] if after is None else ledger.received_after(region, after)
        return LoanReply(self.epoch, lent, returned, replayed)

    def _lent_since(self, at: float, now: float) -> dict[str, KeyUsage]:
        return self.ledger.lent_since(at, now)

    def _answer(self, message: SyncRequest, now: float) -> list[Answer]:
        self._valid_s = max(min(message.valid_s, 5.0), 0.98 * self._valid_s)
        answers = super()._answer(message, now)
        if any(self.ledger.short.values()):
            self.wake()
        return answers

    def _take(self, ask: Ask, now: float, valid_s: float, num_clients: int) -> Answer:
        answer = super()._take(ask, now, valid_s, num_clients)
        limits = self.ledger.limits(ask.key_id)
        if not isinstance(answer, Shortage) or limits is None:
            return answer
        dimension = answer.dimension
        missing = answer.requested - (answer.limit - answer.used)
        if missing > limits.whole[dimension] - limits.share(dimension):
            return answer
        waits = [
            wait_s
            for region, exchange in self.exchanges.items()
            if limits.others[region].dry_until[dimension] <= now and (wait_s := exchange.answer_in_s(now)) is not None
        ]
        return PendingLoan(min(waits), answer) if waits else answer
