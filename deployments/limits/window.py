"""Sliding-minute limits, pure: every function is told the time and nothing here waits, logs or stores.

A charge made at `at` counts while `at <= now < at + 60`. A charge may lie in the future: a lease that can be used
until `at` counts as if all of it were used at its last moment, so that however late it is used no minute holds more
than the limit. What was not used is refunded by naming that same `at`.
"""

from bisect import bisect_left
from math import ulp
from typing import Literal, NamedTuple

WINDOW_S = 60.0

# A window keeps this many charges exactly; beyond it, charges closer together than the resolution share one entry,
# which counts from the latest of them. Memory per window stays below about EXACT_CHARGES + WINDOW_S / RESOLUTION_S.
EXACT_CHARGES = 128
RESOLUTION_S = 0.1

# Up to these limits a lease is never larger than what was asked for: counting is exact, replica by replica.
EXACT_REQUESTS_PER_MINUTE = 120
EXACT_TOKENS_PER_MINUTE = 1_000_000

Dimension = Literal["requests", "tokens"]


class Window:
    """What was charged to one dimension of one key in the last minute, oldest first."""

    __slots__ = ("_amounts", "_head", "_opened_at", "_times", "used")

    def __init__(self) -> None:
        self.used = 0
        self._times: list[float] = []
        self._amounts: list[int] = []
        self._head = 0
        self._opened_at = 0.0

    def expire(self, now: float) -> None:
        """Forget what was charged a minute ago or earlier."""
        times, head = self._times, self._head
        end = len(times)
        while head < end and times[head] + WINDOW_S <= now:
            self.used -= self._amounts[head]
            head += 1
        if head == end:
            times.clear()
            self._amounts.clear()
            head = 0
        elif head > 64 and head * 2 > end:
            del times[:head], self._amounts[:head]
            head = 0
        self._head = head

    def charge(self, at: float, amount: int) -> None:
        """Count `amount` from `at` until a minute later."""
        times = self._times
        self.used += amount
        if not times or at > times[-1]:
            if len(times) - self._head >= EXACT_CHARGES and at - self._opened_at < RESOLUTION_S:
                times[-1] = at
                self._amounts[-1] += amount
            else:
                times.append(at)
                self._amounts.append(amount)
                self._opened_at = at
            return
        index = bisect_left(times, at, self._head)
        crowded = len(times) - self._head >= EXACT_CHARGES and times[index] - at < RESOLUTION_S
        if times[index] == at or crowded:
            self._amounts[index] += amount
        else:
            times.insert(index, at)
            self._amounts.insert(index, amount)

    def refund(self, at: float, amount: int, now: float) -> int:
        """Take back up to `amount` of what was charged at `at`; return how much that was, 0 once it has expired."""
        if at + WINDOW_S <= now:
            return 0
        index = bisect_left(self._times, at, self._head)
        if index == len(self._times) or self._times[index] - at > RESOLUTION_S:
            return 0
        taken = min(amount, self._amounts[index])
        self._amounts[index] -= taken
        self.used -= taken
        return taken

    def wait_s(self, amount: int, limit: int, now: float) -> float | None:
        """Return the seconds until `amount` fits if nothing else is charged; None if it never does."""
        if amount > limit:
            return None
        self.expire(now)
        excess = self.used + amount - limit
        if excess <= 0:
            return 0.0
        for index in range(self._head, len(self._times)):
            excess -= self._amounts[index]
            if excess <= 0:
                return _until(self._times[index] + WINDOW_S, now)
        raise AssertionError("the entries of a window add up to what is used")

    def reset_s(self, now: float) -> float:
        """Return the seconds until nothing is charged any more."""
        self.expire(now)
        for index in range(len(self._times) - 1, self._head - 1, -1):
            if self._amounts[index]:
                return _until(self._times[index] + WINDOW_S, now)
        return 0.0

    @property
    def is_empty(self) -> bool:
        """Nothing that has not expired is kept."""
        return not self._times

    def entries(self) -> list[tuple[float, int]]:
        """Return what is charged as (at, amount), oldest first."""
        head = self._head
        return [(t, a) for t, a in zip(self._times[head:], self._amounts[head:], strict=True) if a]


def _until(then: float, now: float) -> float:
    """Return the seconds from `now` to `then`, such that a clock moved on by them has reached `then`."""
    wait = then - now
    while now + wait < then:
        wait += ulp(then)
    return wait


class Shortage(NamedTuple):
    """Why there is no room: the numbers of `protocol.Denied`."""

    dimension: Dimension
    limit: int
    used: int
    requested: int
    retry_after_s: float | None


class Room(NamedTuple):
    """What was taken out of a key's minute."""

    requests: int
    tokens: int


class KeyLimits:
    """The two windows of one API key and the limits that hold for them."""

    __slots__ = ("requests", "requests_per_minute", "tokens", "tokens_per_minute")

    def __init__(self, requests_per_minute: int, tokens_per_minute: int) -> None:
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.requests = Window()
        self.tokens = Window()

    def take(
        self,
        now: float,
        at: float,
        *,
        requests: int = 0,
        tokens: int = 0,
        spare_requests: int = 0,
        spare_tokens: int = 0,
        num_clients: int = 1,
    ) -> Room | Shortage:
        """Charge `requests` and `tokens` at `at`, or neither.

        `spare_*` are welcome beyond the need, for requests still to come: as much is added as leaves room for
        `num_clients` clients to ask for the same, and nothing where the limit is small enough to be counted exactly.
        """
        shortage = self.shortage(now, requests, tokens)
        if shortage is not None:
            return shortage
        if spare_requests and self.requests_per_minute > EXACT_REQUESTS_PER_MINUTE:
            self.requests.expire(now)
            room = self.requests_per_minute - self.requests.used - requests
            requests += max(0, min(spare_requests, room // (2 * num_clients)))
        if spare_tokens and self.tokens_per_minute > EXACT_TOKENS_PER_MINUTE:
            self.tokens.expire(now)
            room = self.tokens_per_minute - self.tokens.used - tokens
            tokens += max(0, min(spare_tokens, room // (2 * num_clients)))
        if requests:
            self.requests.charge(at, requests)
        if tokens:
            self.tokens.charge(at, tokens)
        return Room(requests, tokens)

    def shortage(self, now: float, requests: int, tokens: int) -> Shortage | None:
        """Return what stands against taking that much now, None if nothing does."""
        if requests:
            self.requests.expire(now)
            if self.requests.used + requests > self.requests_per_minute:
                wait = self.requests.wait_s(requests, self.requests_per_minute, now)
                return Shortage("requests", self.requests_per_minute, self.requests.used, requests, wait)
        if tokens:
            self.tokens.expire(now)
            if self.tokens.used + tokens > self.tokens_per_minute:
                wait = self.tokens.wait_s(tokens, self.tokens_per_minute, now)
                return Shortage("tokens", self.tokens_per_minute, self.tokens.used, tokens, wait)
        return None
