"""How one ingress replica gets room from the gatekeeper: one sync at a time, carrying all that has gathered.

A request that needs room leaves an ask and waits. Refunds, and charges made without asking, count once whatever fails
on the way: they keep their serial until it is answered. When the gatekeeper has been away for PATIENCE_S seconds, this
process decides alone within its share of every limit, and reports its charges afterwards.
"""

import asyncio
import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from deployments.limits.client.key_cache import PATIENCE_S, RETRY_S, KeyCache
from deployments.limits.client.leases import KeyLeases
from deployments.limits.contract import Decision, Denied, Granted
from deployments.limits.messages import Ask, Lease, Posting, SyncReply, SyncRequest, Transport, TransportDown
from deployments.limits.window import Shortage

logger = logging.getLogger(__name__)

_MAX_VALID_S = 5.0
_LEASE_S = 0.4
_ROUND_TRIPS = 4


class Answer(NamedTuple):
    """A decision, and until when (on this process's clock) it may be acted upon."""

    decision: Decision
    until: float = float("inf")


class Waiting(NamedTuple):
    """A request that waits for room."""

    state: KeyLeases
    ask: Ask
    answer: asyncio.Future[Answer]


class SyncLoop:
    """Syncs all keys of this process with the gatekeeper; `owing` are the keys with refunds or charges to report."""

    def __init__(
        self,
        transport: Transport,
        keys: KeyCache,
        clock: Callable[[], float],
        wall: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        self.client_id = secrets.token_hex(8)
        self.states: dict[str, KeyLeases] = {}
        self.live: set[KeyLeases] = set()
        self.owing: set[KeyLeases] = set()
        self.away_since: float | None = None
        self.counts: Counter[str] = Counter()
        self.tried_at = float("-inf")
        self._transport = transport
        self._keys = keys
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._valid_s = _LEASE_S
        self._round_trip_s = 0.0
        self._serials = itertools.count(1)
        self._unanswered: SyncRequest | None = None
        self._waiting: list[Waiting] = []
        self._syncing: list[asyncio.Future[None]] = []
        self._pumping: asyncio.Task[None] | None = None
        self._offset: float | None = None
        self._num_clients = 1

    @property
    def owes(self) -> bool:
        """Refunds or charges wait to be reported."""
        return bool(self.owing) or self._unanswered is not None

    @property
    def has_waiting(self) -> bool:
        """Asks wait for the next sync."""
        return bool(self._waiting)

    def now_at(self) -> float:
        """Return the time on the gatekeeper's clock, as near as it is known."""
        return self._wall() if self._offset is None else self._clock() + self._offset

    async def ask(self, state: KeyLeases, ask: Ask) -> Decision:
        """Return the gatekeeper's decision; what is granted beyond the need is kept in `state`."""
        while True:
            waiting = Waiting(state, ask, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            self._start_pumping()
            try:
                answer = await waiting.answer
            except asyncio.CancelledError:
                if waiting.answer.done() and not waiting.answer.cancelled():
                    self._give_back(waiting, waiting.answer.result().decision)
                raise
            late_s = self._clock() - answer.until
            if late_s < 0:
                return answer.decision
            # The event loop took so long to get here that the lease has ended: it may not be used any more.
            self.counts["late_leases"] += 1
            self._adapt(self._valid_s + late_s)
            self._give_back(waiting, answer.decision)

    def ask_ahead(self, state: KeyLeases, ask: Ask) -> None:
        """Have the next sync ask for room that no request needs yet; all that is granted is kept in `state`."""
        self._waiting.append(Waiting(state, ask, asyncio.get_running_loop().create_future()))

    async def sync(self) -> None:
        """Wait for a sync that begins after this call."""
        done = asyncio.get_running_loop().create_future()
        self._syncing.append(done)
        self._start_pumping()
        await done

    async def stop(self) -> None:
        """End the sync that is under way."""
        if self._pumping is not None:
            self._pumping.cancel()
            await asyncio.gather(self._pumping, return_exceptions=True)

    def decide_alone(self, state: KeyLeases, requests: int, tokens: int) -> Decision:
        """Decide within this process's share of the limits; what it was granted before it was alone counts too."""
        self.counts["decided_alone"] += 1
        limits = state.principal.requests_per_minute, state.principal.tokens_per_minute
        shares = max(1, limits[0] // self._num_clients), max(1, limits[1] // self._num_clients)
        taken = state.take_alone(requests, tokens, self.now_at(), shares)
        if isinstance(taken, Granted):
            self.owing.add(state)
            return taken
        limit = limits[0] if taken.dimension == "requests" else limits[1]
        used = max(0, min(limit, limit - taken.limit + taken.used))
        wait_s = PATIENCE_S if taken.retry_after_s is None else taken.retry_after_s
        return Denied(taken.dimension, limit, used, taken.requested, wait_s)

    def _start_pumping(self) -> None:
        if self._pumping is None:
            self._pumping = asyncio.get_running_loop().create_task(self._pump())

    async def _pump(self) -> None:
        try:
            while self._waiting or self._syncing:
                syncing, self._syncing = self._syncing, []
                try:
                    await self._sync_once()
                finally:
                    for done in syncing:
                        if not done.done():
                            done.set_result(None)
        finally:
            self._pumping = None

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
            except TransportDown:
                self._waiting = waiting + self._waiting
            failing_since = sent_at if failing_since is None else failing_since
            if self.away_since is not None or self._clock() - failing_since >= PATIENCE_S:
                self._unanswered = message._replace(asks=[]) if refunds or charges else None
                self._go_on_alone()
                return
            await self._sleep(RETRY_S)
        self._take_reply(reply, sent_at)
        if reply.replay_after is not None:
            await self._replay(reply.replay_after)
        if reply.answers is None:
            self._waiting = waiting + self._waiting
            await self._sleep(RETRY_S)
        else:
            self._hand_out(waiting, reply.answers, sent_at, valid_s)
        self._note_standings(reply)

    def _take_postings(self) -> tuple[list[Posting], list[Posting], int]:
        """Return refunds, charges and serial. Those that the gatekeeper did not answer go again first, unchanged."""
        if self._unanswered is not None:
            unanswered, self._unanswered = self._unanswered, None
            return unanswered.refunds, unanswered.charges, unanswered.serial
        refunds: list[Posting] = []
        charges: list[Posting] = []
        now_at = self.now_at()
        for state in self.owing:
            more_refunds, more_charges = state.take_postings(now_at)
            refunds += more_refunds
            charges += more_charges
        self.owing.clear()
        return refunds, charges, next(self._serials)

    def _take_reply(self, reply: SyncReply, sent_at: float) -> None:
        self.counts["syncs"] += 1
        if self.away_since is not None:
            logger.info("The gatekeeper is back after %.1f s.", self._clock() - self.away_since)
            self.away_since = None
        self._num_clients = reply.num_clients
        self._adapt(self._clock() - sent_at)
        self._offset = reply.now - sent_at  # From before the message left: late rather than early.
        self._keys.update(reply, sent_at)

    def _adapt(self, round_trip_s: float) -> None:
        """Have leases last for several round trips, also where busy machines make those long.

        They count for as much longer, so that no limit is passed. A slow round trip is remembered for a few syncs.
        """
        self._round_trip_s = max(round_trip_s, 0.8 * self._round_trip_s)
        self._valid_s = min(_MAX_VALID_S, max(_LEASE_S, _ROUND_TRIPS * self._round_trip_s))

    def _hand_out(
        self, waiting: Iterable[Waiting], answers: Iterable[Lease | Shortage], sent_at: float, valid_s: float
    ) -> None:
        now, until = self._clock(), sent_at + valid_s
        is_late = now >= until  # The lease ended on its way.
        self.counts["late_leases"] += is_late
        for one, answer in zip(waiting, answers, strict=True):
            one.state.is_asking = False
            if isinstance(answer, Shortage):
                self._refuse(one, Denied(*answer), now)
                continue
            self.live.add(one.state)
            if is_late or one.answer.done():
                one.state.accept(answer, 0, 0, until, now)
                if not one.answer.done():
                    self._waiting.append(one)
            else:
                self.counts["leases"] += 1
                granted = one.state.accept(answer, one.ask.requests, one.ask.tokens, until, now)
                one.answer.set_result(Answer(granted, until))
            if one.state.refunds:
                self.owing.add(one.state)  # What was left of the lease before.

    def _refuse(self, one: Waiting, denied: Denied, now: float) -> None:
        one.state.remember(denied, now)
        if not one.answer.done():
            one.answer.set_result(Answer(denied))

    def _note_standings(self, reply: SyncReply) -> None:
        now = self._clock()
        for key_id, standing in reply.standings.items():
            state = self.states.get(key_id)
            if state is not None:
                state.standing, state.standing_at = standing, now

    async def _replay(self, after: float) -> None:
        """Report all that was granted after that time; where that fails, the next reply asks for it again."""
        now_at = self.now_at()
        charges = [posting for state in self.states.values() for posting in state.granted_after(after, now_at)]
        self.owing.clear()
        message = SyncRequest(self.client_id, 0, self._keys.revision, self._valid_s, [], [], charges, is_replay=True)
        with suppress(TransportDown):
            await self._transport.sync(message)
            self.counts["replays"] += 1

    def _go_on_alone(self) -> None:
        """Decide here for the requests that wait."""
        if self.away_since is None:
            self.away_since = self._clock()
            self.counts["times_away"] += 1
            logger.warning("The gatekeeper is away; limits are kept by this process's share of them.")
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.state.is_asking = False
            if not one.answer.done():
                decision = self.decide_alone(one.state, one.ask.requests, one.ask.tokens)
                one.answer.set_result(Answer(decision))

    def _give_back(self, waiting: Waiting, decision: Decision) -> None:
        """Give back what was granted to a request that was cancelled before it could take it up."""
        if isinstance(decision, Granted):
            if waiting.ask.requests:
                waiting.state.refund("requests", decision.at, waiting.ask.requests)
            if waiting.ask.tokens:
                waiting.state.refund("tokens", decision.at, waiting.ask.tokens)
            self.owing.add(waiting.state)
