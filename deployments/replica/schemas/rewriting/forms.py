"""How the words of a schema are written: a word of another form is refused before anything is made of it."""

import math
from collections.abc import Callable
from typing import Any

from deployments.replica.schemas.rewriting.refusal import Place, SchemaRefused

TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _are_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(name in TYPES for name in names if isinstance(name, str)) and _are_names(names)


def _are_schemas(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_schema, value))


def _are_named_schemas(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_schema, value.values()))


_Form = tuple[Callable[[Any], bool], str]
_NUMBER: _Form = _is_number, "a number"
_COUNT: _Form = _is_count, "a whole number that is not negative"
_TEXT: _Form = (lambda value: isinstance(value, str)), "a string"
_SCHEMA: _Form = _is_schema, "a schema"
_SCHEMAS: _Form = _are_schemas, "an array of schemas"
_NAMED: _Form = _are_named_schemas, "an object of schemas"
_NAMES: _Form = _are_names, "an array of strings"

_LISTED = (lambda value: isinstance(value, list) and all(map(_is_schema, value))), "an array of schemas"
_FORMS: dict[str, _Form] = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys((f"{end}{what}" for end in ("min", "max") for what in ("Length", "Items", "Properties")), _COUNT),
    **dict.fromkeys(("minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("pattern", "format", "$ref", "$dynamicRef", "$id", "$anchor", "$dynamicAnchor"), _TEXT),
    **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames"), _SCHEMA),
    **dict.fromkeys((f"{which}Properties" for which in ("additional", "unevaluated")), _SCHEMA),
    **dict.fromkeys((f"{which}Items" for which in ("additional", "unevaluated")), _SCHEMA),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _SCHEMAS),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _NAMED),
    "prefixItems": _LISTED,
    "required": _NAMES,
    "type": (_are_types, f"one or more of {', '.join(TYPES)}"),
    "enum": ((lambda value: isinstance(value, list) and bool(value)), "an array with at least one value"),
    "uniqueItems": ((lambda value: isinstance(value, bool)), "true or false"),
    "multipleOf": ((lambda value: _is_number(value) and value > 0), "a number above 0"),
    "items": ((lambda value: _is_schema(value) or _LISTED[0](value)), "a schema or an array of schemas"),
    "dependentRequired": (
        (lambda value: isinstance(value, dict) and all(map(_are_names, value.values()))),
        "an object of arrays of strings",
    ),
    "dependencies": (
        (lambda value: isinstance(value, dict) and all(_is_schema(one) or _are_names(one) for one in value.values())),
        "an object of schemas or arrays of strings",
    ),
}


def check_forms(schema: dict[str, Any], place: Place) -> None:
    """Check that each word of one subschema is written as JSON Schema has it.

    Raises:
        SchemaRefused: one is not, or is one of a draft whose meaning differs.
    """
    for word, value in schema.items():
        if word == "$recursiveRef":
            raise SchemaRefused((*place, word), "is not supported. Use $ref.")
        form = _FORMS.get(word)
        if form is not None and not form[0](value):
            raise SchemaRefused((*place, word), f"must be {form[1]}.")
