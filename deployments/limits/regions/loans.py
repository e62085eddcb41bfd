"""Quota loans of one key, and how much of them a region wants: from its recent use, and the answers of the others."""

from dataclasses import dataclass, field
from math import ceil, exp

from deployments.limits.messages import NO_USAGE, KeyUsage
from deployments.limits.window import WINDOW_S, Dimension

USE_S = 2.0
"""A region borrows ahead for the use of this many seconds."""
LONG_S = 20.0
ASK_AGAIN_S = 0.2
MAX_ASK_AGAIN_S = 1.0


class RecentUse:
    """How much was wanted lately, in two sums that decay to about a third after `USE_S` and `LONG_S` seconds.

    It says how much to borrow, and how much of the own share to keep.
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
        """Return how much the next `USE_S` seconds will want at the current rate."""
        return ceil(self._sums(now)[0] - 0.5)

    def expected_in_minute(self, now: float) -> float:
        """Return how much a minute wants at the lower of both rates, so that neither a burst nor the past counts."""
        short, long = self._sums(now)
        return WINDOW_S * min(short / USE_S, long / LONG_S)

    def _sums(self, now: float) -> tuple[float, float]:
        elapsed = max(0.0, now - self._at)
        return self._short * exp(-elapsed / USE_S), self._long * exp(-elapsed / LONG_S)


def _none() -> dict[Dimension, int]:
    return {"requests": 0, "tokens": 0}


def _never() -> dict[Dimension, float]:
    return {"requests": 0.0, "tokens": 0.0}


class QuotaLoan:
    """Room that another region has lent; usable until `until`, charged at the lender at `at` on the lender's clock.

    For each dimension, `left` can be used here, `owed` is to be refunded, and `held` is the charge at the lender: used
    or not, and not yet refunded.
    """

    __slots__ = ("at", "held", "left", "owed", "region", "until")

    def __init__(self, region: str, at: float, until: float, requests: int, tokens: int) -> None:
        self.region = region
        self.at = at
        self.until = until
        self.left: dict[Dimension, int] = {"requests": requests, "tokens": tokens}
        self.held: dict[Dimension, int] = dict(self.left)
        self.owed = _none()


@dataclass(slots=True)
class OtherRegion:
    """The account of a key in another region, as far as it is known: its last usage, and its answer to the last ask.

    `need` was denied here since that ask. The region has nothing more to lend before `dry_until`, is asked again at
    `ask_at`, and will have room for the ask at `fits_at`.
    """

    usage: KeyUsage = NO_USAGE
    usage_at: float = 0.0
    need: dict[Dimension, int] = field(default_factory=_none)
    ask_at: dict[Dimension, float] = field(default_factory=_never)
    dry_until: dict[Dimension, float] = field(default_factory=_never)
    fits_at: dict[Dimension, float] = field(default_factory=_never)

    def used(self, dimension: Dimension, now: float) -> tuple[int, float]:
        """Return the used part of the region's minute, and the seconds until all of it has expired."""
        requests, reset_requests_s, tokens, reset_tokens_s = self.usage
        used, reset_s = (requests, reset_requests_s) if dimension == "requests" else (tokens, reset_tokens_s)
        left_s = self.usage_at + reset_s - now
        return (used, left_s) if left_s > 0 else (0, 0.0)

    def note_answer(self, dimension: Dimension, wait_s: float, answered_at: float, grace_s: float) -> None:
        """Note that the region can lend more in `wait_s` seconds at the earliest."""
        pause_s = min(max(wait_s, ASK_AGAIN_S), MAX_ASK_AGAIN_S)
        self.ask_at[dimension] = answered_at + pause_s
        self.dry_until[dimension] = answered_at + pause_s + grace_s
        self.fits_at[dimension] = max(answered_at + wait_s, self.ask_at[dimension]) + grace_s
