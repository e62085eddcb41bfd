"""One ranking from several: reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

K = 60
"""How little the first places count more than the next; the paper's value."""

Candidate = TypeVar("Candidate", bound=Hashable)


def fuse(rankings: Sequence[tuple[float, Sequence[Candidate]]]) -> list[tuple[Candidate, float]]:
    """Return candidates, the best first, each with its score; rankings come with their weights.

    A score is the share of what the first place in every ranking would give: 1 at most, above 0.
    """
    scores: dict[Candidate, float] = {}
    for weight, ranking in rankings:
        for place, candidate in enumerate(ranking):
            scores[candidate] = scores.get(candidate, 0.0) + weight / (K + 1 + place)
    most = sum(weight for weight, _ in rankings) / (K + 1)
    ranked = sorted(scores.items(), key=lambda one: -one[1])
    return [(candidate, score / most) for candidate, score in ranked if score > 0]
