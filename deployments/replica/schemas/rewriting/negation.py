"""Parts that must not hold: for `not`, the second half of `if`, and the other branches of `oneOf`.

`negated` and `options` say what must hold instead. Only keywords with the same meaning in every draft are turned
around, as a wider reading of another one would not be safe. `are_disjoint` finds branches of `oneOf` that exclude each
other anyway, by what every draft reads alike.
"""

from itertools import product
from typing import Any

from deployments.replica.schemas.rewriting.document import ALL_TYPES, Document
from deployments.replica.schemas.rewriting.parts import Part, SchemaRefused

_ADVICE = "is not supported within 'not', 'oneOf' or a condition. Say what must hold instead."
_ANNOTATIONS = frozenset(
    {"$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$schema", "contentEncoding", "contentMediaType",
     "contentSchema", "default", "definitions", "deprecated", "description", "else", "examples", "if", "readOnly",
     "then", "title", "writeOnly"}
)  # fmt: skip
_KNOWN_ELSEWHERE = frozenset(
    {"$dynamicRef", "$recursiveRef", "additionalItems", "additionalProperties", "dependencies", "dependentRequired",
     "dependentSchemas", "format", "maxContains", "minContains", "multipleOf", "oneOf", "patternProperties", "pattern",
     "prefixItems", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"}
)  # fmt: skip
_OPPOSITE_BOUNDS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
_MAX_DEPTH = 4
_LENGTHS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
_COUNTED = {"Length": "string", "Items": "array", "Properties": "object"}


def options(document: Document, part: Part) -> list[list[Part]]:
    """Return alternatives to a part that must not hold, each a list of parts, or raise SchemaRefused."""
    schema = part.schema
    if isinstance(schema, bool):
        return [] if schema else [[]]
    if "$ref" in schema:
        beside = [word for word in schema if word != "$ref" and word not in _ANNOTATIONS]
        if beside:
            raise SchemaRefused((*part.place, beside[0]), "is not supported beside '$ref' here. Use allOf.")
        return [[negated(document, document.target(part))]]
    found: list[list[Part]] = []
    for word, value in schema.items():
        if word in _KNOWN_ELSEWHERE or (word == "if" and ("then" in schema or "else" in schema)):
            raise SchemaRefused((*part.place, word), _ADVICE)
        if word == "$without" or (word == "items" and isinstance(value, list)):
            raise SchemaRefused((*part.place, word), _ADVICE)
        found.extend(_without_word(document, part, word, value))
    return found


def negated(document: Document, part: Part) -> Part:
    """Return the part that holds where another does not."""
    return document.made({"not": part}, part.place)


def _without_word(document: Document, part: Part, word: str, value: Any) -> list[list[Part]]:
    """Return alternatives to one keyword of a part, as `options` does."""
    if word in ("allOf", "anyOf"):
        others = [negated(document, document.child(part, word, index)) for index in range(len(value))]
        return [others] if word == "anyOf" else [[other] for other in others]
    if word == "not":
        return [[document.child(part, "not")]]
    return [[document.made(schema, (*part.place, word))] for schema in _opposites(document, part, word, value)]


def _opposites(document: Document, part: Part, word: str, value: Any) -> list[dict[str, Any]]:
    """Return alternatives to a keyword as schemas: each value that breaks the keyword fits at least one of them."""

    def other(*steps: str | int) -> Part:
        return negated(document, document.child(part, word, *steps))

    if word in _OPPOSITE_BOUNDS:
        return [{"type": "number", _OPPOSITE_BOUNDS[word]: value}]
    kind = _COUNTED.get(word[3:]) if word[:3] in ("min", "max") else None
    match word:
        case "type":
            names = {value} if isinstance(value, str) else set(value)
            others = ALL_TYPES - names - ({"number"} if "integer" in names else set())
            return [{"type": sorted(others)}] if others else []
        case "const" | "enum":
            return [{"$without": [value] if word == "const" else value}]
        case "required":
            return [{"type": "object", "properties": {name: False}} for name in dict.fromkeys(value)]
        case "properties":
            return [{"type": "object", "required": [name], "properties": {name: other(name)}} for name in value]
        case "items":
            return [{"type": "array", "contains": other()}]
        case "contains":
            return [{"type": "array", "items": other()}]
        case _ if kind is not None and word.startswith("max"):
            return [{"type": kind, f"min{word[3:]}": int(value) + 1}]
        case _ if kind is not None and value:
            return [{"type": kind, f"max{word[3:]}": int(value) - 1}]
    return []


def are_disjoint(document: Document, one: Part, other: Part, depth: int = 0) -> bool:
    """Return whether surely no value fits both parts."""
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
    """Return a part and the parts that it implies in every draft."""
    found: dict[Part, None] = {}
    pending = [part]
    while pending:
        part = pending.pop()
        if part in found:
            continue
        if isinstance(part.schema, dict) and "$ref" in part.schema:
            pending.append(document.target(part))  # Draft 7 ignores keywords beside it.
            continue
        found[part] = None
        if isinstance(part.schema, dict):
            pending += [document.child(part, "allOf", index) for index in range(len(part.schema.get("allOf", ())))]
    return list(found)


def _words(parts: list[Part], word: str) -> list[Any]:
    return [part.schema[word] for part in parts if isinstance(part.schema, dict) and word in part.schema]


def _types(parts: list[Part]) -> frozenset[str]:
    types = ALL_TYPES
    for names in _words(parts, "type"):
        wanted = {names} if isinstance(names, str) else set(names)
        types &= wanted | ({"number"} if "integer" in wanted else set())
    return types


def _values_exclude(document: Document, ones: list[Part], others: list[Part]) -> bool:
    for values in [[value] for value in _words(ones, "const")] + _words(ones, "enum"):
        if all(any(document.validator.refuses(part, value) for part in [*ones, *others]) for value in values):
            return True
    return False


def _kind_excludes(document: Document, kind: str, ones: list[Part], others: list[Part], depth: int) -> bool:
    if kind == "number":
        return _is_above(ones, others) or _is_above(others, ones)
    if kind in _LENGTHS:
        least, most = _LENGTHS[kind]
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
