"""One ranking from several: a weighted sum of scores (Bruch, Gai and Ingber, ACM TOIS 42, 2023).

Scores count instead of places, since they say how much better the first result is than the second. Each ranking's are
divided by its best, so that cosines and BM25 scores compare; what a ranking has not found counts 0 in it.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)


def fuse(rankings: Sequence[tuple[float, Mapping[Candidate, float]]]) -> list[tuple[Candidate, float]]:
    """Return candidates, the best first, each with its score; rankings come with their weights, their scores above 0.

    A score is the share of what the best in every ranking would have: 1 at most, above 0.
    """
    total = sum(weight for weight, _ in rankings)
    fused: dict[Candidate, float] = {}
    for weight, scores in rankings:
        best = max(scores.values(), default=0.0)
        for candidate, score in scores.items():
            fused[candidate] = fused.get(candidate, 0.0) + weight / total * score / best
    ranked = sorted(fused.items(), key=lambda one: -one[1])
    return [(candidate, score) for candidate, score in ranked if score > 0]
