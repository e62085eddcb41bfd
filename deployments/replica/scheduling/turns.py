"""Whose turn it is, step by step, beside interactive answers: theirs alone, or theirs with some of the background.

Turns are of a few steps each. How much longer the background makes a step is seen where turns of either kind meet:
seconds later the machine may have another speed, and other answers other costs.
"""

from collections import deque
from dataclasses import dataclass, field
from statistics import median

_SHARE = 0.05
"""How much longer than without the background steps beside interactive answers may take, on average.

Half of what one step may: answers that take longer also meet more others, and a batch takes time outside the engine.
"""

_TURN_STEPS = 8
_LEAST_SEEN = 3  # Steps of a turn.
_COMPARED = 31  # Meetings of two turns: half of them may be wrong.
_SELDOM = 1 / 16  # Of all turns, one kind has at least as many, so that it stays known how they compare.


class Turns:
    """Turns as they pass, and what a token of the background has cost in the latest."""

    def __init__(self) -> None:
        self._num_left = 0
        self._has_background = False
        self._due = 0.5
        self._turn, self._turn_before = _Turn(), _Turn()
        self._costs: deque[float] = deque(maxlen=_COMPARED)

    def has_background(self, num_tokens: int) -> bool:
        """Return whether the next step may hold so many tokens of the background; called once for each."""
        if self._num_left == 0:
            self._num_left = _TURN_STEPS
            self._due += self.share(num_tokens)
            self._has_background = self._due >= 1.0
            self._due -= self._has_background
        self._num_left -= 1
        return self._has_background

    def end(self) -> None:
        """Let the next turn be the background's."""
        self._num_left, self._due = 0, 1.0

    def share(self, num_tokens: int) -> float:
        """Return how many of all turns may have so many tokens of the background in each step: half if unknown."""
        if not self._costs:
            return 1 / 2
        longer = median(self._costs) * num_tokens
        return max(_SELDOM, _SHARE / longer) if longer > _SHARE / (1 - _SELDOM) else 1 - _SELDOM

    def note(self, num_theirs: int, num_background: int, seconds: float) -> None:
        """Learn from a step with so many tokens of answers and of the background."""
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
    """Steps that hold the same tokens of answers and of the background, one after the other, and how long each took."""

    num_theirs: int = 0
    num_background: int = 0
    seconds: list[float] = field(default_factory=list)
