"""How long an engine's steps take, learned from those that ran: a fixed time, and as much again for each token.

That holds near the sizes that were seen, and not further: on a processor, a step of 500 tokens takes much less than one
of five would make expect. The fixed time of steps beside interactive answers is longer than that of others, since what
they make leaves the engine at once; a token takes either as long.
"""

import math
from enum import Enum

_FORGET = 0.998  # Of what was learned, at each step: the latest 500 count.
_LEAST_SPREAD = 1.0  # Tokens squared: steps that are nearly of one size say little of others.
_UNKNOWN, _LEAST, _MOST = 4, 1, 512
_GROWTH = 2  # How many times what was seen lately may be believed.


class Kind(Enum):
    """Whether a step holds interactive answers: `BESIDE` does, `BETWEEN` none."""

    BESIDE = "beside"
    BETWEEN = "between"


_SHARE = 0.1
"""How much longer than without the background a step beside interactive answers may take.

One between them may take as long as that too: a request that comes then waits no longer than among other requests.
"""


class StepTimes:
    """Steps as they were seen, by least squares in which older ones count less."""

    def __init__(self) -> None:
        self._seen = {kind: _Seen() for kind in Kind}
        self._each_s = 0.0
        self._is_known = False

    def note(self, kind: Kind, num_tokens: int, seconds: float) -> None:
        """Learn from a step."""
        for one in self._seen.values():
            one.forget()
        self._seen[kind].add(num_tokens, seconds)
        spread = sum(one.spread for one in self._seen.values())
        if spread > _LEAST_SPREAD * sum(one.weight for one in self._seen.values()):
            self._each_s = max(0.0, sum(one.slope for one in self._seen.values()) / spread)
            self._is_known = True

    def room(self, kind: Kind, num_tokens: int) -> int:
        """Return how many tokens more may come to a step of so many: 4 if unknown, at most twice of late."""
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


class _Seen:
    """Sums over steps of one kind: of their tokens x, their seconds y, and of products."""

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
