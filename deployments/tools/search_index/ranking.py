"""Which results of a search count, and in which order.

`condition_of` reads filters on files' attributes: comparisons, joined by "and" and "or".

`fuse` makes one ranking of several: a weighted sum of scores (Bruch, Gai and Ingber, ACM TOIS 42, 2023). It uses
scores, not ranks, since they show how much better the first result is than the second. Each ranking's scores are
divided by its best, so that cosines and BM25 scores compare. A result that a ranking lacks gets 0 from it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeVar

Candidate = TypeVar("Candidate", bound=Hashable)


def fuse(rankings: Sequence[tuple[float, Mapping[Candidate, float]]]) -> list[tuple[Candidate, float]]:
    """Return the candidates with their scores, best first, from rankings with their weights and positive scores.

    A score is above 0 and at most 1: the score of a candidate that is the best in every ranking.
    """
    total = sum(weight for weight, _ in rankings)
    fused: dict[Candidate, float] = {}
    for weight, scores in rankings:
        best = max(scores.values(), default=0.0)
        for candidate, score in scores.items():
            fused[candidate] = fused.get(candidate, 0.0) + weight / total * score / best
    ranked = sorted(fused.items(), key=lambda one: -one[1])
    return [(candidate, score) for candidate, score in ranked if score > 0]


Condition = Callable[[Mapping[str, Any]], bool]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"eq": eq, "ne": ne, "gt": gt, "gte": ge, "lt": lt, "lte": le}


def condition_of(filters: Mapping[str, Any]) -> Condition:
    """Return filters as a function of a file's attributes.

    A missing attribute, or an attribute of another type than the value, only satisfies "ne" and "nin".
    """
    kind = filters["type"]
    if kind in ("and", "or"):
        each, joined = [condition_of(one) for one in filters["filters"]], all if kind == "and" else any
        return lambda attributes: joined(test(attributes) for test in each)
    key, value = filters["key"], filters["value"]
    if kind in ("in", "nin"):
        values, is_in = {(_kind(one), one) for one in value}, kind == "in"
        return lambda attributes: ((_kind(has := attributes.get(key)), has) in values) is is_in
    kind_of_value, compare, is_other = _kind(value), _COMPARE[kind], kind == "ne"

    def test(attributes: Mapping[str, Any]) -> bool:
        has = attributes.get(key)
        return bool(compare(has, value)) if _kind(has) is kind_of_value else is_other

    return test


def _kind(value: Any) -> type:
    """Return the type of a value for comparisons: true is no number, and 1 equals 1.0."""
    return float if type(value) is int else type(value)
