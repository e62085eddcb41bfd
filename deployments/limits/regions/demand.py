"""How much of a key's minute was wanted lately in a region: it says how much to borrow and how much to keep. Pure."""

from math import ceil, exp

from deployments.limits.window import WINDOW_S

USE_S = 2.0
"""The seconds of use for which a region borrows ahead."""
LONG_S = 20.0


class RecentUse:
    """How much was wanted lately, in two sums in which each amount counts less with time.

    About a third of it is left in one after `USE_S` seconds, in the other after `LONG_S`.
    """

    __slots__ = ("_at", "_long", "_short")

    def __init__(self) -> None:
        self._short = 0.0
        self._long = 0.0
        self._at = 0.0

    def add(self, amount: int, now: float) -> None:
        """Count an amount; a negative one takes back."""
        short, long = self._sums(now)
        self._short, self._long, self._at = max(0.0, short + amount), max(0.0, long + amount), now

    def expected(self, now: float) -> int:
        """Return how much the next `USE_S` seconds want if all goes on like this."""
        return ceil(self._sums(now)[0] - 0.5)

    def expected_in_minute(self, now: float) -> float:
        """Return how much a minute wants at the lower of both rates: a burst is no rate yet, and the past none now."""
        short, long = self._sums(now)
        return WINDOW_S * min(short / USE_S, long / LONG_S)

    def _sums(self, now: float) -> tuple[float, float]:
        elapsed = max(0.0, now - self._at)
        return self._short * exp(-elapsed / USE_S), self._long * exp(-elapsed / LONG_S)
