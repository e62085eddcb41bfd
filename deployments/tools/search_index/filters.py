"""Whether a file's attributes meet a condition, as clients write one: comparisons, joined by "and" and "or"."""

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any

Condition = Callable[[Mapping[str, Any]], bool]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"eq": eq, "ne": ne, "gt": gt, "gte": ge, "lt": lt, "lte": le}


def condition_of(filters: Mapping[str, Any]) -> Condition:
    """Return the condition that filters are, to be asked about the attributes of many files.

    An attribute that is not there, or of another kind than the value, is only different from it: nothing else holds.
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
    """Return the type of a value that others are compared with: true is not a number, and 1 is 1.0."""
    return float if type(value) is int else type(value)
