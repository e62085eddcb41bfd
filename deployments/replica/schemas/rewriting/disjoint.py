"""Whether two branches of `oneOf` exclude each other: only what every draft reads alike is looked at."""

from itertools import product
from typing import Any

from deployments.replica.schemas.rewriting.document import Document
from deployments.replica.schemas.rewriting.parts import Part

_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
_MAX_DEPTH = 4
_BOUNDS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}


def are_disjoint(document: Document, one: Part, other: Part, depth: int = 0) -> bool:
    """Return whether no value can fit both parts, as far as is seen."""
    if depth > _MAX_DEPTH:
        return False
    ones, others = _sure(document, one), _sure(document, other)
    if any(part.schema is False for part in ones + others):
        return True
    if _values_exclude(document, ones, others) or _values_exclude(document, others, ones):
        return True
    shared = _types(ones) & _types(others)
    return all(_kind_excludes(document, kind, ones, others, depth) for kind in shared)


def _sure(document: Document, part: Part) -> list[Part]:
    """Return parts that hold in every draft because one does."""
    found: dict[Part, None] = {}
    pending = [part]
    while pending:
        part = pending.pop()
        if part in found:
            continue
        if isinstance(part.schema, dict) and "$ref" in part.schema:
            pending.append(document.target(part))  # What stands beside it is unknown to draft 7.
            continue
        found[part] = None
        if isinstance(part.schema, dict):
            pending += [document.child(part, "allOf", index) for index in range(len(part.schema.get("allOf", ())))]
    return list(found)


def _words(parts: list[Part], word: str) -> list[Any]:
    return [part.schema[word] for part in parts if isinstance(part.schema, dict) and word in part.schema]


def _types(parts: list[Part]) -> frozenset[str]:
    types = _TYPES
    for names in _words(parts, "type"):
        wanted = {names} if isinstance(names, str) else set(names)
        types &= wanted | ({"number"} if "integer" in wanted else set())
    return types


def _values_exclude(document: Document, ones: list[Part], others: list[Part]) -> bool:
    for values in [[value] for value in _words(ones, "const")] + _words(ones, "enum"):
        if all(any(document.judge.refuses(part, value) for part in [*ones, *others]) for value in values):
            return True
    return False


def _kind_excludes(document: Document, kind: str, ones: list[Part], others: list[Part], depth: int) -> bool:
    if kind == "number":
        return _is_above(ones, others) or _is_above(others, ones)
    if kind in _BOUNDS:
        least, most = _BOUNDS[kind]
        return any(
            low > high
            for here, there in ((ones, others), (others, ones))
            for low, high in product(_words(here, least), _words(there, most))
        )
    if kind == "object":
        return _has_discriminator(document, ones, others, depth)
    return False


def _is_above(ones: list[Part], others: list[Part]) -> bool:
    lows, highs = _words(ones, "minimum"), _words(others, "maximum")
    beyond, below = _words(ones, "exclusiveMinimum"), _words(others, "exclusiveMaximum")
    pairs = [(low, high, low > high) for low, high in product(lows, highs)]
    pairs += [(low, high, low >= high) for low, high in [*product(beyond, highs + below), *product(lows, below)]]
    return any(is_above for *_, is_above in pairs)


def _has_discriminator(document: Document, ones: list[Part], others: list[Part], depth: int) -> bool:
    names = {name for required in _words(ones + others, "required") for name in required}
    for name in sorted(names):
        here, there = _of_property(document, ones, name), _of_property(document, others, name)
        if any(part.schema is False for part in here + there):
            return True
        if any(are_disjoint(document, one, other, depth + 1) for one, other in product(here, there)):
            return True
    return False


def _of_property(document: Document, parts: list[Part], name: str) -> list[Part]:
    found = []
    for part in parts:
        schema = part.schema
        if not isinstance(schema, dict):
            continue
        if name in schema.get("properties", {}):
            found.append(document.child(part, "properties", name))
        elif schema.get("additionalProperties") is False and "patternProperties" not in schema:
            found.append(document.child(part, "additionalProperties"))
    return found
