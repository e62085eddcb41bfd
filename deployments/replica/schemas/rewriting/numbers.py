"""Numbers within bounds, in the steps and sizes that a grammar compiler keeps."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

from deployments.replica.schemas.rewriting.gathering import Conjunction
from deployments.replica.schemas.rewriting.parts import SchemaRefused

_STEP = Decimal("0.000001")
_LARGE = 10**9
"""From here on, steps of one: floating-point numbers are too coarse for smaller steps."""
_LARGEST = 2**63 - 2
"""Larger bounds are narrowed to it: the compiler counts in 64 bits."""
_MAX_MULTIPLE = 200
_MAX_LISTED = 1000


def number_forms(conjunction: Conjunction) -> list[dict[str, Any]]:
    """Return the schemas of the numbers that fit all parts, or raise SchemaRefused for some uses of `multipleOf`."""
    is_integer = "integer" in conjunction.types
    lows, highs, steps = [], [], []
    for part in conjunction.parts:
        schema = part.schema
        lows += [
            (_exact(schema[word]), word != "minimum") for word in ("minimum", "exclusiveMinimum") if word in schema
        ]
        highs += [
            (-_exact(schema[word]), word != "maximum") for word in ("maximum", "exclusiveMaximum") if word in schema
        ]
        if "multipleOf" in schema:
            steps.append((part, schema["multipleOf"]))
    # The strictest bounds: the largest one, and the exclusive one of two equal ones.
    low, high = max(lows, default=None), max(highs, default=None)
    high = None if high is None else (-high[0], high[1])
    if steps and all(value == int(value) for _, value in steps):
        is_integer = True
    without = {_exact(value) for value in conjunction.without if type(value) in (int, float)}
    ranges = _split(low, high, sorted(without))
    multiple = _multiple(steps, is_integer=is_integer)
    forms = []
    for one_low, one_high in ranges:
        form = _integers(one_low, one_high) if is_integer else _decimals(one_low, one_high)
        if form is not None:
            forms += [form] if multiple == 1 else _multiples(form, multiple, steps[0][0].place)
    return forms


def _exact(value: float) -> Decimal:
    return Decimal(str(value))


_Bound = tuple[Decimal, bool]


def _split(
    low: _Bound | None, high: _Bound | None, without: list[Decimal]
) -> list[tuple[_Bound | None, _Bound | None]]:
    ranges = []
    for value in without:
        ranges.append((low, _stricter(high, (value, True), lower=True)))
        low = _stricter(low, (value, True), lower=False)
    return [*ranges, (low, high)]


def _stricter(one: _Bound | None, other: _Bound, *, lower: bool) -> _Bound:
    if one is None:
        return other
    if one[0] == other[0]:
        return one[0], one[1] or other[1]
    return min(one, other) if lower else max(one, other)


def _integers(low: _Bound | None, high: _Bound | None) -> dict[str, Any] | None:
    form: dict[str, Any] = {"type": "integer"}
    if low is not None:
        least = math.floor(low[0]) + 1 if low[1] else math.ceil(low[0])
        form["minimum"] = max(least, -_LARGEST)
    if high is not None:
        most = math.ceil(high[0]) - 1 if high[1] else math.floor(high[0])
        form["maximum"] = min(most, _LARGEST)
    least, most = form.get("minimum", -_LARGEST), form.get("maximum", _LARGEST)
    return form if least <= most and least <= _LARGEST and most >= -_LARGEST else None


def _decimals(low: _Bound | None, high: _Bound | None) -> dict[str, Any] | None:
    """Return the schema of decimals, with bounds on the compiler's grid, or of the only number between the bounds."""
    if low is None and high is None:
        return {"type": "number"}
    least = None if low is None else _within(max(low[0], Decimal(-_LARGEST)), low, 1)
    most = None if high is None else _within(min(high[0], Decimal(_LARGEST)), high, -1)
    bounds = {"minimum": least, "maximum": most}
    is_counted = all(bound is None or abs(bound) <= _LARGEST for bound in bounds.values())
    if is_counted and (least is None or most is None or least <= most):
        return {"type": "number", **{word: _as_json(bound) for word, bound in bounds.items() if bound is not None}}
    for bound in (low, high):
        if bound is not None and _is_between(bound[0], low, high):
            return {"enum": [_as_json(bound[0])]}
    return None


def _within(value: Decimal, bound: _Bound, direction: int) -> Decimal:
    """Return the first value within a bound that the compiler can write, and that differs from the bound as a float."""
    step = _STEP if abs(value) < _LARGE else Decimal(1)
    rounding = ROUND_CEILING if direction > 0 else ROUND_FLOOR
    found = (value / step).to_integral_value(rounding) * step
    while bound[1] and float(found) == float(bound[0]):
        found += direction * step
        step *= 10
    return found


def _is_between(value: Decimal, low: _Bound | None, high: _Bound | None) -> bool:
    above = low is None or value > low[0] or (value == low[0] and not low[1])
    below = high is None or value < high[0] or (value == high[0] and not high[1])
    return above and below


def _as_json(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


def _multiple(steps: list[Any], *, is_integer: bool) -> int:
    multiple = 1
    for part, value in steps:
        if value == 1 or (is_integer and _divides_all(value)):
            continue
        if value != int(value):
            raise SchemaRefused((*part.place, "multipleOf"), "is not supported for fractions. Leave it out.")
        multiple = math.lcm(multiple, int(value))
    return multiple


def _divides_all(step: float) -> bool:
    """Return whether every integer is a multiple of a step, in floating-point arithmetic."""
    parts = round(1 / step)
    return parts > 0 and abs(Fraction(step) * parts - 1) < Fraction(1, 2**54)


def _multiples(form: dict[str, Any], multiple: int, place: Any) -> list[dict[str, Any]]:
    least, most = form.get("minimum"), form.get("maximum")
    if least is None and most is None and multiple <= _MAX_MULTIPLE:
        # vLLM refuses the keyword beside a single type, but not beside a list of types.
        return [{"type": ["integer"], "multipleOf": multiple}]
    if least is not None and most is not None and (most - least) // multiple < _MAX_LISTED:
        values = list(range(math.ceil(Decimal(least) / multiple) * multiple, most + 1, multiple))
        return [{"enum": values}] if values else []
    raise SchemaRefused(
        (*place, "multipleOf"), f"is not supported here. Use it up to {_MAX_MULTIPLE} without bounds, or with both."
    )
