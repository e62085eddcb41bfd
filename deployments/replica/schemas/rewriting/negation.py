"""What must hold where a subschema must not: for `not`, the second half of `if`, and the other branches of `oneOf`.

Only words whose meaning is the same in every draft are turned around, as a wider reading of one would be no safe one.
"""

from typing import Any

from deployments.replica.schemas.rewriting.document import Document
from deployments.replica.schemas.rewriting.parts import Part
from deployments.replica.schemas.rewriting.refusal import SchemaRefused

_ADVICE = "is not supported within 'not', 'oneOf' or a condition. Say what must hold instead."
_SAY_NOTHING = frozenset(
    {"$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$schema", "contentEncoding", "contentMediaType",
     "contentSchema", "default", "definitions", "deprecated", "description", "else", "examples", "if", "readOnly",
     "then", "title", "writeOnly"}
)  # fmt: skip
_KNOWN_ELSEWHERE = frozenset(
    {"$dynamicRef", "$recursiveRef", "additionalItems", "additionalProperties", "dependencies", "dependentRequired",
     "dependentSchemas", "format", "maxContains", "minContains", "multipleOf", "oneOf", "patternProperties", "pattern",
     "prefixItems", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"}
)  # fmt: skip
_BOUNDS = {
    "minimum": "exclusiveMaximum",
    "maximum": "exclusiveMinimum",
    "exclusiveMinimum": "maximum",
    "exclusiveMaximum": "minimum",
}
_COUNTED = {"Length": "string", "Items": "array", "Properties": "object"}
_OTHERS = {"null", "boolean", "number", "string", "array", "object"}


def options(document: Document, part: Part) -> list[list[Part]]:
    """Return what may hold where a part must not: any one of some lists, all of whose parts hold together.

    Raises:
        SchemaRefused: it has words that cannot be turned around.
    """
    schema = part.schema
    if isinstance(schema, bool):
        return [] if schema else [[]]
    if "$ref" in schema:
        beside = [word for word in schema if word != "$ref" and word not in _SAY_NOTHING]
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
    """Return the part that holds where one does not."""
    return document.made({"not": part}, part.place)


def _without_word(document: Document, part: Part, word: str, value: Any) -> list[list[Part]]:
    """Return what may hold where one word of a part does not."""
    if word in ("allOf", "anyOf"):
        others = [negated(document, document.child(part, word, index)) for index in range(len(value))]
        return [others] if word == "anyOf" else [[other] for other in others]
    if word == "not":
        return [[document.child(part, "not")]]
    return [[document.made(schema, (*part.place, word))] for schema in _opposites(document, part, word, value)]


def _opposites(document: Document, part: Part, word: str, value: Any) -> list[dict[str, Any]]:
    """Return the alternatives to a word: a value that does not keep the word fits at least one of them."""

    def other(*steps: str | int) -> Part:
        return negated(document, document.child(part, word, *steps))

    if word in _BOUNDS:
        return [{"type": "number", _BOUNDS[word]: value}]
    kind = _COUNTED.get(word[3:]) if word[:3] in ("min", "max") else None
    match word:
        case "type":
            names = {value} if isinstance(value, str) else set(value)
            others = _OTHERS - names - ({"number"} if "integer" in names else set())
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
