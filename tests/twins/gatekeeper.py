"""Keys and limits in this process's memory, with a clock that the test moves."""

import time
from collections.abc import Callable, Mapping

from deployments.limits.contract import Decision, Denied, GatekeeperUnavailable, Granted, Quota
from deployments.limits.window import KeyLimits, Room
from deployments.state.identity.keys import digest_of
from deployments.state.identity.principal import Principal
from deployments.state.usage.record import RequestRecord


class TestClock:
    """Unix seconds that stand still until `advance`."""

    __test__ = False

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class MemoryGatekeeper:
    """A `Gatekeeper` over a dict of secrets; exact, and free of leases.

    `principals` maps secrets to who holds them and may be changed at any time (delete an entry to revoke it). While
    `unavailable` is true, secrets that were not identified before raise GatekeeperUnavailable. `settled` lists every
    settlement as (key id, reserved, used).
    """

    def __init__(self, principals: Mapping[str, Principal], clock: Callable[[], float] = time.time) -> None:
        self.principals = dict(principals)
        self.clock = clock
        self.unavailable = False
        self.pepper = b"pepper" * 6
        self.settled: list[tuple[str, int, int]] = []
        self._identified: dict[str, Principal] = {}
        self._limits: dict[str, KeyLimits] = {}

    async def identify(self, secret: str) -> Principal | None:
        if self.unavailable:
            principal = self._identified.get(secret)
            if principal is None:
                raise GatekeeperUnavailable("The gatekeeper is switched off.")
        else:
            principal = self.principals.get(secret)
        if principal is None or (principal.expires_at is not None and principal.expires_at <= self.clock()):
            return None
        self._identified[secret] = principal
        return principal

    async def can_check_keys(self) -> bool:
        return not self.unavailable

    def digest(self, secret: str) -> bytes:
        return digest_of(secret, self.pepper)

    async def identify_digest(self, digest: bytes) -> Principal | None:
        known = {self.digest(secret): secret for secret in (*self.principals, *self._identified)}
        return await self.identify(known[digest]) if digest in known else None

    async def admit(self, principal: Principal) -> Decision:
        return self._take(principal, requests=1)

    async def reserve(self, principal: Principal, tokens: int) -> Decision:
        return self._take(principal, tokens=tokens)

    def settle(self, principal: Principal, *, granted: Granted, reserved: int, used: int) -> None:
        self.settled.append((principal.key_id, reserved, used))
        window = self._limits_of(principal).tokens
        now = self.clock()
        if used < reserved:
            window.refund(granted.at, reserved - used, now)
        elif used > reserved:
            window.charge(now, used - reserved)

    def quota(self, principal: Principal) -> Quota:
        limits, now = self._limits_of(principal), self.clock()
        reset_requests_s, reset_tokens_s = limits.requests.reset_s(now), limits.tokens.reset_s(now)
        return Quota(
            limit_requests=principal.requests_per_minute,
            remaining_requests=max(0, principal.requests_per_minute - limits.requests.used),
            reset_requests_s=reset_requests_s,
            limit_tokens=principal.tokens_per_minute,
            remaining_tokens=max(0, principal.tokens_per_minute - limits.tokens.used),
            reset_tokens_s=reset_tokens_s,
        )

    def _take(self, principal: Principal, requests: int = 0, tokens: int = 0) -> Decision:
        now = self.clock()
        taken = self._limits_of(principal).take(now, now, requests=requests, tokens=tokens)
        if isinstance(taken, Room):
            return Granted(now)
        return Denied(taken.dimension, taken.limit, taken.used, taken.requested, taken.retry_after_s)

    def _limits_of(self, principal: Principal) -> KeyLimits:
        limits = self._limits.get(principal.key_id)
        if limits is None:
            limits = self._limits[principal.key_id] = KeyLimits(0, 0)
        limits.requests_per_minute = principal.requests_per_minute
        limits.tokens_per_minute = principal.tokens_per_minute
        return limits


class MemoryRequestLog:
    """A `RequestLog` that keeps every record in `records`, and in `ahead` those that were written ahead."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.ahead: list[RequestRecord] = []

    def write_ahead(self, record: RequestRecord) -> None:
        self.ahead.append(record)

    def record(self, record: RequestRecord) -> None:
        self.records.append(record)
