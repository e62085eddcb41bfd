"""The gatekeeper's client in an ingress replica: keys from a cache, room from leases.

HTTP admission calls it. An allowed request with a cached key and a lease touches only this process's memory. `tick`
runs ten times a second while there is traffic: it refunds what leases did not use, reports what was settled, and
fetches changes of keys.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from typing_extensions import override

from deployments.limits.client.key_cache import KeyCache, StoredKeys
from deployments.limits.client.leases import KeyLeases, Leases
from deployments.limits.client.sync_loop import SyncLoop
from deployments.limits.contract import Decision, Denied, Gatekeeper, GatekeeperUnavailable, Granted, Quota
from deployments.limits.messages import Ask, Transport
from deployments.limits.window import WHOLE, WINDOW_S, Share
from deployments.patience import USUAL, Patience
from deployments.state.identity.keys import can_be_secret
from deployments.state.identity.principal import Principal

TICK_S = 0.1
_SYNC_INTERVAL_S = 0.25
_SPARE = 2
"""A lease has room for at least this many further requests, so that single requests seldom wait."""
_RENEW_S = 1.0
"""How long after its last use a key's leases are renewed before they end, so that no request waits."""
_ACTIVE_S = WINDOW_S + 2.0
_FORGET_S = 3 * WINDOW_S
_GRANTED = Granted()


class GatekeeperClient(Gatekeeper):
    """A `Gatekeeper` over a transport. Keys are digested under `pepper`.

    While the gatekeeper is away, its replicas together stay within `share` of every limit. `counts` counts events, for
    tests and benchmarks. A background task calls `tick`, unless `background` is false.
    """

    def __init__(
        self,
        transport: Transport,
        pepper: bytes,
        *,
        stored_keys: StoredKeys | None = None,
        share: Share = WHOLE,
        patience: Patience = USUAL,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        background: bool = True,
    ) -> None:
        self._keys = KeyCache(transport, pepper, stored_keys, clock, wall, sleep, patience)
        self._leases = Leases()
        self._sync_loop = SyncLoop(transport, self._keys, self._leases, clock, wall, sleep, patience, share)
        self.counts = self._sync_loop.counts
        self._clock = clock
        self._sleep = sleep
        self._patience = patience
        self._background = background
        self._ticking: asyncio.Task[None] | None = None
        self._active_at = float("-inf")
        self._swept_at = float("-inf")

    @override
    async def identify(self, secret: str) -> Principal | None:
        return await self.identify_digest(self._keys.digest(secret)) if can_be_secret(secret) else None

    @override
    async def can_check_keys(self) -> bool:
        await self._sync_loop.sync()
        return self._sync_loop.away_since is None or await self._keys.can_read_stored()

    @override
    def digest(self, secret: str) -> bytes:
        return self._keys.digest(secret)

    @override
    async def identify_digest(self, digest: bytes) -> Principal | None:
        keys = self._keys
        known = keys.get(digest)
        if known is None or self._clock() >= keys.trusted_until:
            return await self._identify_slowly(digest)
        return keys.accepted(known)

    @override
    async def admit(self, principal: Principal) -> Decision:
        now = self._clock()
        state = self._leases.of(principal, now)
        state.used_at = now
        if state.requests.take(1, now):
            return state.requests.granted
        return await self._ask(state, principal, 1, 0, now)

    @override
    async def reserve(self, principal: Principal, tokens: int) -> Decision:
        if tokens <= 0:
            return _GRANTED
        now = self._clock()
        state = self._leases.of(principal, now)
        state.used_at = now
        if state.tokens.take(tokens, now):
            return state.tokens.granted
        if tokens > principal.tokens_per_minute:
            used = principal.tokens_per_minute - state.quota(principal, now).remaining_tokens
            return Denied("tokens", principal.tokens_per_minute, used, tokens, None)
        return await self._ask(state, principal, 0, tokens, now)

    @override
    def settle(self, principal: Principal, *, granted: Granted, reserved: int, used: int) -> None:
        unused = reserved - used
        if unused == 0:
            return
        state = self._leases.of(principal, self._clock())
        if unused > 0:
            state.refund("tokens", granted.at, unused)
        else:
            state.charge(self._sync_loop.now_at(), -unused)
        self._leases.unreported.add(state)
        if self._ticking is None:
            self._start_ticking()

    @override
    def quota(self, principal: Principal) -> Quota:
        now = self._clock()
        return self._leases.of(principal, now).quota(principal, now)

    async def tick(self) -> None:
        """Renew leases, refund unused room, and sync with the gatekeeper when that is due."""
        sync_loop, now = self._sync_loop, self._clock()
        if sync_loop.away_since is None:
            for state in self._leases.live:
                if now - state.used_at < _RENEW_S and not state.is_asking:
                    self._renew(state, now)
        self._leases.expire(now)
        if now - self._swept_at >= WINDOW_S:
            self._swept_at = now
            self._leases.forget(now, _FORGET_S)
            sync_loop.own_share.forget()
        has_news = sync_loop.away_since is None and sync_loop.is_due
        if has_news or now - sync_loop.tried_at >= _SYNC_INTERVAL_S - TICK_S / 2:
            await sync_loop.sync()

    async def close(self) -> None:
        """Refund all leases, and stop."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        sync_loop = self._sync_loop
        self._leases.release_all()
        if sync_loop.has_unreported and sync_loop.away_since is None:
            await sync_loop.sync()
        await sync_loop.stop()

    async def _identify_slowly(self, digest: bytes) -> Principal | None:
        keys, sync_loop = self._keys, self._sync_loop
        self._active_at = now = self._clock()
        if self._ticking is None:
            self._start_ticking()
        if now >= keys.trusted_until and sync_loop.away_since is None:
            await sync_loop.sync()
        known = keys.get(digest)
        if known is None:
            waited_s = 0.0
            if sync_loop.away_since is not None:
                waited_s = self._patience.away_after_s + self._clock() - sync_loop.away_since
            return await keys.look_up(digest, max(0.0, self._patience.look_up_s - waited_s), is_away=waited_s > 0)
        away_since = sync_loop.away_since
        if away_since is not None and self._clock() - away_since > self._patience.away_grace_s:
            raise GatekeeperUnavailable("The gatekeeper has been away for too long.")
        return keys.accepted(known)

    async def _ask(self, state: KeyLeases, principal: Principal, requests: int, tokens: int, now: float) -> Decision:
        self._active_at = state.used_at = now
        state.principal = principal
        denied = state.recall(requests, tokens, now)
        if denied is not None:
            return denied
        if self._ticking is None:
            self._start_ticking()
        sync_loop = self._sync_loop
        if sync_loop.away_since is not None:
            decision = sync_loop.decide_alone(state, requests, tokens)
            if decision is not None:
                return decision
        if tokens and state.tokens.left:
            state.release("tokens")
            self._leases.unreported.add(state)
        spare_requests = spare_tokens = 0
        if not state.is_asking:
            state.grow(state.requests if requests else state.tokens, now)
            if requests or now >= state.requests.until:
                spare_requests = state.requests.spare_for(_SPARE)
            if tokens or now >= state.tokens.until:  # An admitted request needs tokens next.
                spare_tokens = state.tokens.spare_for(_SPARE + requests)
        state.is_asking = True
        ask = Ask(state.key_id, requests, tokens, spare_requests, spare_tokens)
        decision = await sync_loop.ask(state, ask)
        held = state.requests if requests else state.tokens
        if isinstance(decision, Denied) and held.take(requests + tokens, self._clock()):
            return held.granted  # A concurrent ask was granted spare room.
        return decision

    def _renew(self, state: KeyLeases, now: float) -> None:
        """Ask for new leases if those of a key run out before the next tick."""
        soon = now + 1.5 * TICK_S
        of_requests, of_tokens = (held.runs_out(now, soon) for held in (state.requests, state.tokens))
        if of_requests or of_tokens:
            state.is_asking = True
            spare_requests = state.requests.renew_for(_SPARE) if of_requests else 0
            spare_tokens = state.tokens.renew_for(_SPARE) if of_tokens else 0
            self._sync_loop.ask_ahead(state, Ask(state.key_id, 0, 0, spare_requests, spare_tokens))

    def _start_ticking(self) -> None:
        if self._background:
            self._ticking = asyncio.get_running_loop().create_task(self._tick_while_active())

    async def _tick_while_active(self) -> None:
        sync_loop = self._sync_loop
        has_regions = sync_loop.own_share.has_others  # They borrow room of keys that are not in use here.
        try:
            while (
                has_regions
                or self._clock() - self._active_at < _ACTIVE_S
                or sync_loop.has_unreported
                or self._leases.live
            ):
                await self._sleep(TICK_S)
                await self.tick()
        finally:
            self._ticking = None
