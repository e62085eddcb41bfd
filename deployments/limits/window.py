"""Sliding-minute limits, and each region's share of them. Pure: time is a parameter.

A charge made at `at` counts while `at <= now < at + 60`. It may lie in the future: a lease that may be used until `at`
counts as if all of it were used at its last moment, so that no minute holds more than the limit, however late the lease
is used. A refund names the `at` of its charge.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from math import ulp
from typing import Literal, NamedTuple, Self

WINDOW_S = 60.0

# A window keeps this many charges exactly. Beyond that, charges closer than the resolution share one entry, which
# counts from the latest of them: a window has at most about EXACT_CHARGES + WINDOW_S / RESOLUTION_S entries.
EXACT_CHARGES = 128
RESOLUTION_S = 0.1

# Up to these limits a lease has no spare room: counting is exact across replicas.
EXACT_REQUESTS_PER_MINUTE = 120
EXACT_TOKENS_PER_MINUTE = 1_000_000

Dimension = Literal["requests", "tokens"]
DIMENSIONS: tuple[Dimension, Dimension] = ("requests", "tokens")


class Window:
    """The charges of the last minute in one dimension of one key, oldest first."""

    __slots__ = ("_amounts", "_head", "_opened_at", "_times", "used")

    def __init__(self) -> None:
        self.used = 0
        self._times: list[float] = []
        self._amounts: list[int] = []
        self._head = 0
        self._opened_at = 0.0

    def expire(self, now: float) -> None:
        """Drop the charges of a minute ago and earlier."""
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
        """Refund up to `amount` of the charge at `at`; return how much, 0 if it has expired."""
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
        """Return the seconds until every charge has expired."""
        self.expire(now)
        for index in range(len(self._times) - 1, self._head - 1, -1):
            if self._amounts[index]:
                return _until(self._times[index] + WINDOW_S, now)
        return 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there are no charges."""
        return not self._times

    def entries(self) -> list[tuple[float, int]]:
        """Return the charges as (at, amount), oldest first."""
        head = self._head
        return [(t, a) for t, a in zip(self._times[head:], self._amounts[head:], strict=True) if a]


def _until(then: float, now: float) -> float:
    """Return the seconds from `now` to `then`, rounded up so that `now` plus them reaches `then`."""
    wait = then - now
    while now + wait < then:
        wait += ulp(then)
    return wait


class Shortage(NamedTuple):
    """A denial, with the fields of `contract.Denied`."""

    dimension: Dimension
    limit: int
    used: int
    requested: int
    retry_after_s: float | None


class Room(NamedTuple):
    """The requests and tokens that were charged to a key's minute."""

    requests: int
    tokens: int


class KeyLimits:
    """The limits of one API key and its two windows."""

    __slots__ = ("requests", "requests_per_minute", "tokens", "tokens_per_minute")

    def __init__(self, requests_per_minute: int, tokens_per_minute: int) -> None:
        self.requests_per_minute = requests_per_minute
        self.tokens_per_minute = tokens_per_minute
        self.requests = Window()
        self.tokens = Window()

    def window(self, dimension: Dimension) -> Window:
        """Return the window of a dimension."""
        return self.requests if dimension == "requests" else self.tokens

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

        `spare_*` are wanted beyond the need, for later requests. Each is cut to half of what is left, divided by
        `num_clients`, and to nothing where the limit is small enough to be counted exactly.
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
        """Return the shortage if that much does not fit now, else None."""
        amounts = (requests, self.requests_per_minute), (tokens, self.tokens_per_minute)
        for dimension, (amount, limit) in zip(DIMENSIONS, amounts, strict=True):
            window = self.window(dimension)
            if amount:
                window.expire(now)
                if window.used + amount > limit:
                    return Shortage(dimension, limit, window.used, amount, window.wait_s(amount, limit, now))
        return None


@dataclass(frozen=True, slots=True)
class Share:
    """The part of every limit that one of `count` regions owns; the default is that of a single region.

    A region's gatekeeper admits no more than its part, so that regions never exceed a limit together, even while they
    cannot reach each other.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of_region(cls, name: str, names: Iterable[str]) -> Self:
        """Return the part of the region `name` among all `names`, which every region must list alike.

        Raises:
            ValueError: `name` is not among them.
        """
        ordered = sorted(set(names))
        return cls(ordered.index(name), len(ordered))

    def of(self, limit: int) -> int:
        """Return this region's part of a limit; the parts of all regions add up to it."""
        return limit // self.count + (self.index < limit % self.count)


WHOLE = Share()
