"""How long an engine's steps take, learned from those that ran: a fixed time, and as much again for each token.

That holds near the sizes that were seen, and not further: on a processor, a step of 500 tokens takes much less than one
of five would make expect.
"""

import math

_SHARE = 0.25
_FORGET = 0.998  # Of what was learned, at each step: the latest 500 count.
_LEAST_SPREAD = 1.0  # Tokens squared: steps that are nearly of one size say little of others.
_UNKNOWN, _LEAST, _MOST = 4, 2, 512
_GROWTH = 2  # How many times what was seen lately may be believed.


class StepTimes:
    """Steps as they were seen, by least squares in which older ones count less."""

    def __init__(self) -> None:
        self._weight = self._sum_x = self._sum_y = self._sum_xx = self._sum_xy = 0.0
        self._fixed_s = self._each_s = 0.0
        self._is_known = False

    def note(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step."""
        self._weight = _FORGET * self._weight + 1.0
        self._sum_x = _FORGET * self._sum_x + num_tokens
        self._sum_y = _FORGET * self._sum_y + seconds
        self._sum_xx = _FORGET * self._sum_xx + num_tokens * num_tokens
        self._sum_xy = _FORGET * self._sum_xy + num_tokens * seconds
        spread = self._weight * self._sum_xx - self._sum_x**2
        if spread > _LEAST_SPREAD * self._weight**2:
            self._each_s = max(0.0, (self._weight * self._sum_xy - self._sum_x * self._sum_y) / spread)
            self._fixed_s = max(0.0, (self._sum_y - self._each_s * self._sum_x) / self._weight)
            self._is_known = True

    def room(self, num_tokens: int) -> int:
        """Return how many tokens more make a step of so many a quarter longer: 4 if unknown, at most twice of late."""
        if not self._is_known:
            return _UNKNOWN
        most_s = _SHARE * (self._fixed_s + self._each_s * num_tokens)
        most = min(_MOST, max(_UNKNOWN, math.ceil(_GROWTH * self._sum_x / self._weight)))
        return most if most_s >= self._each_s * most else max(_LEAST, int(most_s / self._each_s))
