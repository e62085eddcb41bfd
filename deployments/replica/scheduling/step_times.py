"""Learns how long an engine's steps take: a fixed time, plus a time per token.

This holds only near the sizes of past steps: on a CPU, 500 tokens take much less than a step of 5 suggests. The fixed
time is longer with interactive answers, as their output is sent at once; the time per token is the same.
"""

import math
from enum import Enum

_FORGET = 0.998  # The weight of older steps falls by this factor each step, so that about the latest 500 count.
_LEAST_SPREAD = 1.0  # In tokens squared: steps of nearly one size say little about others.
_UNKNOWN, _LEAST, _MOST = 4, 1, 512
_GROWTH = 2  # The times are used for up to this many times the recent mean size.
_READING_S = 0.1
"""How long a step that reads prompts may take, as other requests wait for it. More at once is hardly faster."""
_LEAST_READ = 256
_ALIKE = 2


class Kind(Enum):
    """Whether a step holds interactive answers: `BESIDE` does, `BETWEEN` does not."""

    BESIDE = "beside"
    BETWEEN = "between"


_SHARE = 0.1
"""How much longer the background may make a step with interactive answers; steps between answers take as long."""


class StepTimes:
    """A least-squares fit of step times in which older steps count less."""

    def __init__(self) -> None:
        self._seen = {kind: _Seen() for kind in Kind}
        self._each_s = 0.0
        self._is_known = False

    def note(self, kind: Kind, num_tokens: int, seconds: float) -> None:
        """Add a step to the fit."""
        for one in self._seen.values():
            one.forget()
        self._seen[kind].add(num_tokens, seconds)
        spread = sum(one.spread for one in self._seen.values())
        if spread > _LEAST_SPREAD * sum(one.weight for one in self._seen.values()):
            self._each_s = max(0.0, sum(one.slope for one in self._seen.values()) / spread)
            self._is_known = True

    def room(self, kind: Kind, num_tokens: int) -> int:
        """Return how many background tokens may join `num_tokens`: 4 until known, at most twice the recent mean."""
        seen = self._seen[kind]
        if not self._is_known or not seen.weight:
            return _UNKNOWN
        fixed_s = self._fixed_s(seen)
        beside = self._seen[Kind.BESIDE]
        alone_s = (self._fixed_s(beside) if beside.weight else fixed_s) + self._each_s * max(1, num_tokens)
        most_s = (1 + _SHARE) * alone_s - fixed_s - self._each_s * num_tokens
        most = min(_MOST, max(_UNKNOWN, math.ceil(_GROWTH * seen.mean[0])))
        if most_s >= self._each_s * most:
            return most
        return max(_LEAST, int(most_s / self._each_s)) if self._each_s else _LEAST

    def _fixed_s(self, seen: "_Seen") -> float:
        mean, seconds = seen.mean
        return max(0.0, seconds - self._each_s * mean)


class ReadingPace:
    """How many `tokens` of prompts a step reads, to take about `_READING_S`: fewer as a prompt grows long."""

    def __init__(self, most: int) -> None:
        self.tokens = most
        self._most = most
        self._num_full = 0

    def note(self, num_tokens: int, seconds: float) -> None:
        """Note how many tokens the planned step reads, and how long the last step took, in seconds.

        If steps are planned ahead, that was an earlier step; so the last steps must have read as much as they may.
        """
        if self._num_full >= _ALIKE and seconds > 0:
            wanted = self.tokens * _READING_S / seconds
            self.tokens = max(min(_LEAST_READ, self._most), min(self._most, int(min(wanted, 2 * self.tokens))))
        self._num_full = self._num_full + 1 if num_tokens >= self.tokens else 0


class _Seen:
    """Sums over steps of one kind: of their tokens x, their seconds y, and the products."""

    def __init__(self) -> None:
        self.weight = self._x = self._y = self._xx = self._xy = 0.0

    def forget(self) -> None:
        self.weight, self._x, self._y = _FORGET * self.weight, _FORGET * self._x, _FORGET * self._y
        self._xx, self._xy = _FORGET * self._xx, _FORGET * self._xy

    def add(self, x: int, y: float) -> None:
        self.weight, self._x, self._y = self.weight + 1.0, self._x + x, self._y + y
        self._xx, self._xy = self._xx + x * x, self._xy + x * y

    @property
    def mean(self) -> tuple[float, float]:
        return self._x / self.weight, self._y / self.weight

    @property
    def spread(self) -> float:
        """The sum of squares of x around its mean."""
        return self._xx - self._x**2 / self.weight if self.weight else 0.0

    @property
    def slope(self) -> float:
        """The sum of products of x and y around their means."""
        return self._xy - self._x * self._y / self.weight if self.weight else 0.0
