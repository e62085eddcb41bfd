"""The syncs of one ingress replica with the gatekeeper: one at a time, each with everything that waits for it.

`GatekeeperClient` adds an ask for each request without a lease and awaits its decision. Refunds and charges count once:
they are sent under the same serial until it is answered. When the gatekeeper has been away for `Patience.away_after_s`,
or announces its stop, this process decides alone within its share of every limit, and reports its charges afterwards.
"""

import asyncio
import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from deployments.limits.client.key_cache import KeyCache
from deployments.limits.client.leases import KeyLeases, Leases
from deployments.limits.client.own_share import OwnShare
from deployments.limits.contract import Decision, Denied, Granted
from deployments.limits.messages import (
    MAX_VALID_S,
    Answer,
    Ask,
    PendingLoan,
    Posting,
    Stopping,
    SyncReply,
    SyncRequest,
    Transport,
    TransportDown,
)
from deployments.limits.window import WHOLE, Share, Shortage
from deployments.patience import Patience

logger = logging.getLogger(__name__)

_LEASE_S = 0.4
_ROUND_TRIPS = 4


class PendingAsk(NamedTuple):
    """An ask that waits for a sync, and then for its answer: a decision, and until when it is valid on this clock."""

    state: KeyLeases
    ask: Ask
    answer: asyncio.Future[tuple[Decision | PendingLoan, float]]

    def decide(self, decision: Decision | PendingLoan, until: float = float("inf")) -> None:
        """Give the request its decision if it still waits."""
        if not self.answer.done():
            self.answer.set_result((decision, until))


class SyncLoop:
    """Syncs the leases of this process. The gatekeeper is away since `away_since`, None while it answers."""

    def __init__(
        self,
        transport: Transport,
        keys: KeyCache,
        leases: Leases,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
        patience: Patience,
        share: Share = WHOLE,
    ) -> None:
        self.client_id = secrets.token_hex(8)
        self.away_since: float | None = None
        self.counts: Counter[str] = Counter()
        self.tried_at = float("-inf")
        self._transport = transport
        self._keys = keys
        self._leases = leases
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._patience = patience
        self.own_share = OwnShare(share, clock, patience)
        self._valid_s = _LEASE_S
        self._round_trip_s = 0.0
        self._serials = itertools.count(1)
        self._unanswered: SyncRequest | None = None
        self._waiting: list[PendingAsk] = []
        self._syncing: list[asyncio.Future[None]] = []
        self._is_awaited = False
        self._running: asyncio.Task[None] | None = None
        self._offset: float | None = None

    @property
    def has_unreported(self) -> bool:
        """Whether refunds or charges wait to be reported."""
        return bool(self._leases.unreported) or self._unanswered is not None

    @property
    def is_due(self) -> bool:
        """Whether an ask, a refund, a charge or a restarted gatekeeper waits for the next sync."""
        return bool(self._waiting) or self.has_unreported or self._is_awaited

    def now_at(self) -> float:
        """Return the estimated time on the gatekeeper's clock."""
        return self._wall() if self._offset is None else self._clock() + self._offset

    async def ask(self, state: KeyLeases, ask: Ask) -> Decision:
        """Return the gatekeeper's decision; spare room is kept in `state`."""
        begun = self._clock()
        while True:
            pending = self.ask_ahead(state, ask)
            self._start()
            try:
                decision, until = await pending.answer
            except asyncio.CancelledError:
                if pending.answer.done() and not pending.answer.cancelled():
                    self._refund(pending, pending.answer.result()[0])
                raise
            if isinstance(decision, PendingLoan):
                again_s, shortage = decision
                if self._clock() + again_s - begun > self._patience.crossing_s:
                    return Denied(*shortage)
                self.counts["loan_waits"] += 1
                await self._sleep(again_s)
                continue
            late_s = self._clock() - until
            if late_s < 0:
                return decision
            # The event loop was so slow that the lease has ended; it must not be used.
            self.counts["late_leases"] += 1
            self._adapt(self._valid_s + late_s)
            self._refund(pending, decision)

    def ask_ahead(self, state: KeyLeases, ask: Ask) -> PendingAsk:
        """Add an ask to the next sync, without waiting for the decision; the lease is kept in `state`."""
        pending = PendingAsk(state, ask, asyncio.get_running_loop().create_future())
        self._waiting.append(pending)
        return pending

    async def sync(self) -> None:
        """Wait for a sync that starts after this call, or until the gatekeeper is found to be away."""
        done = asyncio.get_running_loop().create_future()
        self._syncing.append(done)
        self._start()
        await done

    async def stop(self) -> None:
        """Cancel the running sync."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def decide_alone(self, state: KeyLeases, requests: int, tokens: int) -> Decision | None:
        """Return this process's own decision; None if the request waits for the gatekeeper (see `OwnShare.decide`)."""
        assert self.away_since is not None
        decision = self.own_share.decide(state, requests, tokens, self.now_at(), self.away_since)
        self.counts["decided_alone"] += decision is not None
        if isinstance(decision, Granted):
            self._leases.unreported.add(state)
        return decision

    def _start(self) -> None:
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting or self._syncing:
                syncing, self._syncing = self._syncing, []
                try:
                    await self._sync_once()
                finally:
                    if self.away_since is not None:  # Those that came during the try would wait for another.
                        syncing, self._syncing = syncing + self._syncing, []
                    for done in syncing:
                        if not done.done():
                            done.set_result(None)
                if self.away_since is not None and self._waiting:
                    await self._sleep(self._patience.retry_s)
        finally:
            self._running = None

    async def _sync_once(self) -> None:
        refunds, charges, serial = self._take_postings()
        failing_since: float | None = None
        while True:
            waiting, self._waiting = self._waiting, []
            self.tried_at = sent_at = self._clock()
            valid_s, asks = self._valid_s, [one.ask for one in waiting]
            message = SyncRequest(self.client_id, serial, self._keys.revision, valid_s, asks, refunds, charges)
            try:
                reply = await self._transport.sync(message)
                break
            except TransportDown as error:
                self._waiting = waiting + self._waiting
                is_stopping = isinstance(error, Stopping)
            failing_since = self._clock() if failing_since is None else failing_since
            is_away = self.away_since is not None or self._clock() - failing_since >= self._patience.away_after_s
            if is_stopping or is_away:
                self._unanswered = message._replace(asks=[]) if refunds or charges else None
                self._go_on_alone()
                return
            await self._sleep(self._patience.retry_s)
        self._take_reply(reply, sent_at)
        if reply.replay_after is not None:
            await self._replay(reply.replay_after)
        self._is_awaited = reply.answers is None
        if reply.answers is None:
            self._waiting = waiting + self._waiting
            await self._sleep(self._patience.retry_s)
        else:
            self._hand_out(waiting, reply.answers, sent_at, valid_s)
        self._leases.note_usage(reply.usage, self._clock())

    def _take_postings(self) -> tuple[list[Posting], list[Posting], int]:
        """Return refunds, charges and their serial; unanswered ones come first, unchanged."""
        if self._unanswered is not None:
            unanswered, self._unanswered = self._unanswered, None
            return unanswered.refunds, unanswered.charges, unanswered.serial
        refunds, charges = self._leases.take_postings(self.now_at())
        return refunds, charges, next(self._serials)

    def _take_reply(self, reply: SyncReply, sent_at: float) -> None:
        self.counts["syncs"] += 1
        if self.away_since is not None:
            logger.info("The gatekeeper is back after %.1f s.", self._clock() - self.away_since)
            self.away_since = None
        self._adapt(self._clock() - sent_at)
        self._offset = reply.now - sent_at  # Measured from sending: late rather than early.
        self._keys.update(reply, sent_at)
        self.own_share.note(reply.lent, reply.num_clients)

    def _adapt(self, round_trip_s: float) -> None:
        """Set the validity of leases to several round trips; a slow one counts for a few syncs.

        The gatekeeper charges a lease at the end of its validity, so no limit is exceeded.
        """
        self._round_trip_s = max(round_trip_s, 0.8 * self._round_trip_s)
        self._valid_s = min(MAX_VALID_S, max(_LEASE_S, _ROUND_TRIPS * self._round_trip_s))

    def _hand_out(
        self, waiting: Iterable[PendingAsk], answers: Iterable[Answer], sent_at: float, valid_s: float
    ) -> None:
        now, until = self._clock(), sent_at + valid_s
        is_late = now >= until  # The lease ended before it arrived.
        self.counts["late_leases"] += is_late
        for one, answer in zip(waiting, answers, strict=True):
            one.state.is_asking = False
            if isinstance(answer, Shortage):
                denied = Denied(*answer)
                one.state.remember(denied, now)
                one.decide(denied)
                continue
            if isinstance(answer, PendingLoan):
                one.decide(answer)
                continue
            self._leases.live.add(one.state)
            if is_late or one.answer.done():
                one.state.accept(answer, 0, 0, until, now)
                if not one.answer.done():
                    self._waiting.append(one)
            else:
                self.counts["leases"] += 1
                granted = one.state.accept(answer, one.ask.requests, one.ask.tokens, until, now)
                one.decide(granted, until)
            if one.state.refunds:
                self._leases.unreported.add(one.state)  # The rest of the previous lease.

    async def _replay(self, after: float) -> None:
        """Report all grants after that time; if that fails, the next reply asks for them again."""
        charges = self._leases.granted_after(after, self.now_at())
        message = SyncRequest(self.client_id, 0, self._keys.revision, self._valid_s, [], [], charges, is_replay=True)
        with suppress(TransportDown):
            await self._transport.sync(message)
            self.counts["replays"] += 1

    def _go_on_alone(self) -> None:
        """Decide the waiting asks in this process; some go on waiting."""
        if self.away_since is None:
            self.away_since = self._clock()
            self.counts["times_away"] += 1
            logger.warning("The gatekeeper is away; this process decides within its share of the limits.")
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.answer.done():
                if (decision := self.decide_alone(one.state, one.ask.requests, one.ask.tokens)) is None:
                    self._waiting.append(one)
                    continue
                one.decide(decision)
            one.state.is_asking = False

    def _refund(self, pending: PendingAsk, decision: Decision | PendingLoan) -> None:
        """Refund a grant that the request can no longer use."""
        if isinstance(decision, Granted):
            if pending.ask.requests:
                pending.state.refund("requests", decision.at, pending.ask.requests)
            if pending.ask.tokens:
                pending.state.refund("tokens", decision.at, pending.ask.tokens)
            self._leases.unreported.add(pending.state)
