"""Whether a file's attributes meet a condition, as clients write one: comparisons, joined by "and" and "or"."""

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"eq": eq, "ne": ne, "gt": gt, "gte": ge, "lt": lt, "lte": le}


def meets(attributes: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Return whether attributes meet a condition.

    An attribute that is not there, or of another kind than the value, is only different from it: nothing else holds.
    """
    kind = condition["type"]
    if kind in ("and", "or"):
        each = (meets(attributes, one) for one in condition["filters"])
        return all(each) if kind == "and" else any(each)
    has, value = attributes.get(condition["key"]), condition["value"]
    if kind in ("in", "nin"):
        is_among = any(_alike(has, one) and bool(has == one) for one in value)
        return is_among if kind == "in" else not is_among
    if not _alike(has, value):
        return bool(kind == "ne")
    return bool(_COMPARE[kind](has, value))


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values can be compared: true is not a number."""
    return _kind(one) is _kind(other) and one is not None


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)
