"""Bounds on the JSON schemas that clients send, checked before a grammar compiler sees them.

Only their size is bounded: `deployments.replica.schemas.budget` bounds the compiler's time and memory. Schemas are
walked without recursion, and references are not followed, so cycles do no harm.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from serve_app.schemas.base import invalid

MAX_SCHEMA_BYTES = 200_000
MAX_SUBSCHEMAS = 10_000
MAX_DEPTH = 32
MAX_PROPERTIES = 5_000
MAX_ENUM_VALUES = 1_000
MAX_ENUM_CHARS = 15_000
MAX_REPETITIONS = 100_000
MAX_PATTERN_CHARS = 1_000
MAX_ALL_PATTERNS_CHARS = 10_000
MAX_PATTERN_SIZE = 2_000

_SUBSCHEMA_KEYS = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_SUBSCHEMA_LIST_KEYS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SUBSCHEMA_MAP_KEYS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_REPETITION_KEYS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_REFERENCE_KEYS = ("$ref", "$dynamicRef", "$recursiveRef")
_PATTERN_TOKEN = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]|\((?:\?(?::|=|!|<=|<!|<[A-Za-z]\w*>))?|\)|[*+?]\??|\{(\d*)(?:(,)(\d*))?\}\??|.", re.S
)

Schema = dict[str, Any]


def object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the strict schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def check_json_schema(schema: Schema, at: str, *, strict: bool = False, is_compiled: bool = True) -> None:
    """Refuse a schema that is out of bounds, or not in OpenAI's subset when `strict`; `at` is its path in the body.

    One that no grammar `is_compiled` from may be as complex as its size allows.
    """
    if len(orjson.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise _refuse(at, f"it is larger than {MAX_SCHEMA_BYTES} bytes")
    if strict and schema.get("type") != "object":
        raise _refuse(at, "a strict schema must have 'type': 'object' at its root")
    budget = _Budget(at)
    pending: list[tuple[Any, int]] = [(schema, 1)]
    while pending:
        node, depth = pending.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, dict):
            raise _refuse(at, "every subschema must be an object or a boolean")
        if depth > MAX_DEPTH:
            raise _refuse(at, f"it is nested deeper than {MAX_DEPTH} levels")
        if is_compiled:
            budget.spend(node)
        if strict:
            _check_strict(node, at)
        pending.extend((child, depth + 1) for child in _subschemas(node, at))


class _Budget:
    """How much of its bounds a schema has used so far."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._subschemas = 0
        self._properties = 0
        self._enum_values = 0
        self._enum_chars = 0
        self._pattern_chars = 0

    def spend(self, node: Schema) -> None:
        """Count one subschema, without those below it."""
        self._subschemas += 1
        if self._subschemas > MAX_SUBSCHEMAS:
            raise _refuse(self._at, f"it has more than {MAX_SUBSCHEMAS} subschemas")
        for key in ("properties", "patternProperties"):
            if isinstance(node.get(key), dict):
                self._properties += len(node[key])
        if self._properties > MAX_PROPERTIES:
            raise _refuse(self._at, f"it has more than {MAX_PROPERTIES} properties")
        if "enum" in node:
            self._spend_enum(node["enum"])
        for key in _REPETITION_KEYS:
            if key in node:
                self._check_repetitions(key, node[key])
        for key in _REFERENCE_KEYS:
            if key in node and not (isinstance(node[key], str) and node[key].startswith("#")):
                raise _refuse(self._at, f"'{key}' may only point into the schema itself ('#...')")
        for pattern in _patterns(node):
            self._check_pattern(pattern)

    def _spend_enum(self, values: Any) -> None:
        if not isinstance(values, list) or not values:
            raise _refuse(self._at, "'enum' must be an array with at least one value")
        self._enum_values += len(values)
        self._enum_chars += sum(len(value) if isinstance(value, str) else len(orjson.dumps(value)) for value in values)
        if self._enum_values > MAX_ENUM_VALUES:
            raise _refuse(self._at, f"it has more than {MAX_ENUM_VALUES} enum values")
        if self._enum_chars > MAX_ENUM_CHARS:
            raise _refuse(self._at, f"its enum values have more than {MAX_ENUM_CHARS} characters")

    def _check_repetitions(self, key: str, value: Any) -> None:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or value < 0:
            raise _refuse(self._at, f"'{key}' must be a non-negative integer")
        if value > MAX_REPETITIONS:
            raise _refuse(self._at, f"'{key}' is larger than {MAX_REPETITIONS}")

    def _check_pattern(self, pattern: Any) -> None:
        if not isinstance(pattern, str):
            raise _refuse(self._at, "'pattern' must be a string")
        check_pattern(pattern, self._at)
        self._pattern_chars += len(pattern)
        if self._pattern_chars > MAX_ALL_PATTERNS_CHARS:
            raise _refuse(self._at, f"its patterns have more than {MAX_ALL_PATTERNS_CHARS} characters")


def check_pattern(pattern: str, at: str) -> None:
    """Refuse a regular expression that is out of bounds; `at` is its path."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise _refuse(at, f"a pattern has more than {MAX_PATTERN_CHARS} characters")
    if pattern_size(pattern) > MAX_PATTERN_SIZE:
        raise _refuse(at, "a pattern repeats too much")


def _patterns(node: Schema) -> list[Any]:
    keys = node.get("patternProperties")
    return [*([node["pattern"]] if "pattern" in node else []), *(keys if isinstance(keys, dict) else [])]


def pattern_size(pattern: str) -> int:
    """Return the length of a regular expression with its counted repetitions written out.

    Nested repetitions multiply: "(a{100}){100}" is 10,000. Linear in time, without backtracking.
    """
    totals = [0]
    last = 0
    for match in _PATTERN_TOKEN.finditer(pattern):
        atom = match.group()
        if atom[0] == "(":
            totals.append(0)
            last = 0
        elif atom == ")":
            last = totals.pop() if len(totals) > 1 else 0
            totals[-1] += last
        elif match.group(1) or match.group(3):
            times = min(int(match.group(3) or match.group(1)), 10**6)
            totals[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
        elif atom[0] not in "*+?{":
            last = 1
            totals[-1] += 1
    return sum(totals)


def _subschemas(node: Schema, at: str) -> list[Any]:
    found: list[Any] = []
    for key, value in node.items():
        if key in _SUBSCHEMA_KEYS:
            found.extend(value if isinstance(value, list) else [value])
        elif key in _SUBSCHEMA_LIST_KEYS:
            if not isinstance(value, list) or not value:
                raise _refuse(at, f"'{key}' must be an array with at least one schema")
            found.extend(value)
        elif key in _SUBSCHEMA_MAP_KEYS:
            if not isinstance(value, dict):
                raise _refuse(at, f"'{key}' must be an object")
            found.extend(value.values())
    return found


def _check_strict(node: Schema, at: str) -> None:
    if node.get("type") != "object" and "properties" not in node:
        return
    if node.get("additionalProperties") is not False:
        raise _refuse(at, "in a strict schema 'additionalProperties' is required to be supplied and to be false")
    required = node.get("required", [])
    properties = node.get("properties", {})
    if not isinstance(required, list) or not isinstance(properties, dict) or set(properties) - set(map(str, required)):
        raise _refuse(
            at, "in a strict schema 'required' is required to be an array that includes every key in 'properties'"
        )


def _refuse(at: str, why: str) -> Exception:
    return invalid(f"Invalid schema for '{{param}}': {why}.", at)
