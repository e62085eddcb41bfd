"""Decides which steps with interactive answers may also hold background, so that they are 5 % longer on average.

Steps take turns, a few at a time: with and without background. The cost of the background is measured where the two
kinds meet, since seconds later the machine's speed and the answers may differ.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

_SHARE = 0.05
"""How much longer the background may make steps with interactive answers, on average.

Half of what a single step may: longer answers also overlap with more others, and a batch costs time outside the engine.
"""

_TURN_STEPS = 8
_LEAST_SEEN = 3  # The number of steps of a turn that make it count.
_COMPARED = 31  # The number of comparisons; their median is right even if almost half of them are wrong.
_SELDOM = 1 / 16  # Each kind gets at least this share of turns, so that the two can always be compared.


class Turns:
    """The turns, and the cost of a background token as measured in the latest."""

    def __init__(self) -> None:
        self._num_left = 0
        self._has_background = False
        self._due = 0.5
        self._turn, self._turn_before = _Turn(), _Turn()
        self._costs: deque[float] = deque(maxlen=_COMPARED)

    def has_background(self, num_tokens: int) -> bool:
        """Return whether the next step may hold `num_tokens` of background; must be called once per step."""
        if self._num_left == 0:
            self._num_left = _TURN_STEPS
            self._due += self.share(num_tokens)
            self._has_background = self._due >= 1.0
            self._due -= self._has_background
        self._num_left -= 1
        return self._has_background

    def end(self) -> None:
        """End this turn; the next one has background."""
        self._num_left, self._due = 0, 1.0

    def share(self, num_tokens: int) -> float:
        """Return the share of turns that may carry `num_tokens` of background per step (0.5 until measured)."""
        if not self._costs:
            return 1 / 2
        longer = median(self._costs) * num_tokens
        return max(_SELDOM, _SHARE / longer) if longer > _SHARE / (1 - _SELDOM) else 1 - _SELDOM

    def note(self, num_theirs: int, num_background: int, seconds: float) -> None:
        """Learn from a step with these numbers of interactive and background tokens."""
        turn = self._turn
        if len(turn.seconds) == _TURN_STEPS or (num_theirs, num_background) != (turn.num_theirs, turn.num_background):
            self._compare(self._turn_before, turn)
            self._turn_before, self._turn = turn, _Turn(num_theirs, num_background)
        self._turn.seconds.append(seconds)

    def _compare(self, one: "_Turn", other: "_Turn") -> None:
        alone, beside = sorted((one, other), key=lambda turn: turn.num_background)
        is_seen = min(len(alone.seconds), len(beside.seconds)) >= _LEAST_SEEN
        if is_seen and alone.num_theirs == beside.num_theirs and alone.num_background == 0 < beside.num_background:
            longer = median(beside.seconds) / median(alone.seconds) - 1.0
            self._costs.append(longer / beside.num_background)


@dataclass(slots=True)
class _Turn:
    """Consecutive steps with the same numbers of interactive and background tokens, and how long each took."""

    num_theirs: int = 0
    num_background: int = 0
    seconds: list[float] = field(default_factory=list)
