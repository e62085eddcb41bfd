"""Bounds on JSON schemas from strangers."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from serve_app.schemas import json_schema
from serve_app.schemas.json_schema import check_json_schema, pattern_size

STRING = {"type": "string"}


def nested(depth, key="not"):
    schema = STRING
    for _ in range(depth):
        schema = {key: schema}
    return schema


def refusal_of(schema, **options):
    with pytest.raises(PydanticCustomError) as caught:
        check_json_schema(schema, "at", **options)
    assert caught.value.type == "invalid_value"
    assert caught.value.context["at"] == "at"
    return caught.value.context["sentence"]


GOOD = [
    {},
    {"type": "object", "properties": {"a": STRING, "b": True}, "required": ["a"], "additionalProperties": False},
    {"type": "array", "items": [STRING, {"type": "integer", "minimum": 0}], "maxItems": 100_000},
    {"type": "array", "prefixItems": [STRING], "minItems": 0, "maxItems": 10.0, "items": False},
    {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
    {"anyOf": [STRING, {"type": "null"}], "not": {"const": "x"}, "if": {}, "then": {}, "else": {}},
    {"enum": ["a", 1, None, {"x": [1]}], "const": {"properties": 5}, "default": {"$ref": "http://x"}},
    {"type": "string", "pattern": r"^([a-z0-9]+-)*[a-z0-9]{1,64}$", "minLength": 1, "maxLength": 4000},
    {"enum": [f"v{i}" for i in range(1_000)]},
    {"type": "object", "patternProperties": {"^x-": STRING}, "propertyNames": {"maxLength": 5}},
    {"properties": {"properties": {"type": "string"}, "$ref": {"type": "string"}, "enum": {"type": "string"}}},
    nested(json_schema.MAX_DEPTH - 1),
]


@pytest.mark.parametrize("schema", GOOD, ids=range(len(GOOD)))
def test_ordinary_schema_is_accepted(schema):
    check_json_schema(schema, "at")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"description": "x" * 200_000}, "larger than 200000 bytes"),
        (nested(json_schema.MAX_DEPTH), "nested deeper than 32 levels"),
        (nested(json_schema.MAX_DEPTH, "items"), "nested deeper"),
        ({"properties": {f"p{i}": {} for i in range(5_001)}}, "more than 5000 properties"),
        ({"anyOf": [{"properties": {f"p{i}": True for i in range(2_600)}}] * 2}, "more than 5000 properties"),
        ({"anyOf": [{}] * 10_001}, "more than 10000 subschemas"),
        ({"enum": [str(i) for i in range(1_001)]}, "more than 1000 enum values"),
        ({"anyOf": [{"enum": [str(i) for i in range(501)]}] * 2}, "more than 1000 enum values"),
        ({"enum": ["x" * 151 for _ in range(100)]}, "more than 15000 characters"),
        ({"enum": [{"x": "y" * 15_000}]}, "more than 15000 characters"),
        ({"enum": []}, "at least one value"),
        ({"enum": "x"}, "'enum' must be an array"),
        ({"minItems": 100_001}, "'minItems' is larger than 100000"),
        ({"maxItems": 10**9}, "'maxItems' is larger"),
        ({"items": {"minLength": 10**9}}, "'minLength' is larger"),
        ({"maxLength": 1e12}, "'maxLength' is larger"),
        ({"minProperties": 10**6}, "'minProperties' is larger"),
        ({"maxItems": -1}, "'maxItems' must be a non-negative integer"),
        ({"maxItems": True}, "'maxItems' must be a non-negative integer"),
        ({"maxItems": 1.5}, "'maxItems' must be a non-negative integer"),
        ({"maxItems": "5"}, "'maxItems' must be a non-negative integer"),
        ({"$ref": "http://10.0.0.1/x"}, "'$ref' may only point into the schema itself"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "'$ref' may only"),
        ({"$ref": 5}, "'$ref' may only"),
        ({"$dynamicRef": "other.json"}, "'$dynamicRef' may only"),
        ({"pattern": "a" * 1_001}, "a pattern has more than 1000 characters"),
        ({"anyOf": [{"pattern": "a" * 900}] * 12}, "patterns have more than 10000 characters"),
        ({"pattern": "(a{100}){100}"}, "a pattern repeats too much"),
        ({"pattern": "[a-z]{1,100000}"}, "a pattern repeats too much"),
        ({"pattern": 5}, "'pattern' must be a string"),
        ({"patternProperties": {"(a{100}){100}": {}}}, "a pattern repeats too much"),
        ({"properties": []}, "'properties' must be an object"),
        ({"$defs": 5}, "'$defs' must be an object"),
        ({"patternProperties": 1}, "'patternProperties' must be an object"),
        ({"anyOf": {}}, "'anyOf' must be an array"),
        ({"oneOf": []}, "'oneOf' must be an array with at least one"),
        ({"items": 5}, "every subschema must be an object or a boolean"),
        ({"properties": {"a": None}}, "every subschema must be"),
    ],
)
def test_schema_beyond_bounds_is_refused(schema, why):
    assert why in refusal_of(schema)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array", "items": STRING}, "'type': 'object' at its root"),
        ({}, "'type': 'object' at its root"),
        ({"type": "object", "properties": {"a": STRING}, "required": ["a"]}, "'additionalProperties' is required"),
        ({"type": "object", "additionalProperties": True}, "'additionalProperties' is required"),
        ({"type": "object", "properties": {"a": STRING}, "additionalProperties": False}, "'required' is required"),
        ({"type": "object", "properties": {"a": STRING}, "required": "a", "additionalProperties": False}, "'required'"),
        ({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"], "additionalProperties": False},
         "'additionalProperties' is required"),
    ],
)  # fmt: skip
def test_strict_schema_keeps_to_the_subset(schema, why):
    assert why in refusal_of(schema, strict=True)
    if schema.get("required") != "a":
        check_json_schema(schema, "at")


def test_strict_schema_within_the_subset_is_accepted():
    inner = {"type": "object", "properties": {"b": STRING}, "required": ["b"], "additionalProperties": False}
    outer = {"type": "object", "properties": {"a": inner}, "required": ["a"], "additionalProperties": False}
    check_json_schema(outer, "at", strict=True)


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 3),
        ("a{2,5}", 5),
        ("a{2,}", 2),
        ("a{,5}", 5),
        ("a{0}", 1),
        ("(ab){3}", 6),
        ("((a{2}){3}){4}", 24),
        ("(?:ab|c){2}", 8),
        ("(?<name>a){2}", 2),
        ("[abc\\]]{4}", 4),
        ("\\d{4}-\\d{2}", 7),
        ("a+b*c?", 3),
        ("a{x}", 3),
        (")", 0),
        ("(((", 0),
        ("a{99999999999}", 10**6),
    ],
)
def test_size_of_a_pattern_counts_repetitions(pattern, size):
    assert pattern_size(pattern) == size


@given(st.text(alphabet="ab()[]{}|?*+,\\19^$.:<=!", max_size=1_000))
def test_size_of_any_pattern_is_found_quickly(pattern):
    times_s = []
    for _ in range(3):  # A collection of garbage may fall into one of them.
        started = time.process_time()
        assert pattern_size(pattern) >= 0
        times_s.append(time.process_time() - started)
    assert min(times_s) < 0.05


KEYS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "enum", "$ref", "$defs", "pattern", "minItems", "maxLength", "not",
     "required", "additionalProperties", "patternProperties", "x"]
)  # fmt: skip
VALUES = st.recursive(
    st.booleans() | st.none() | st.integers(-5, 10**6) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
SCHEMAS = st.dictionaries(KEYS, VALUES, max_size=5)


@given(SCHEMAS, st.booleans())
def test_any_schema_is_accepted_or_refused(schema, strict):
    refused = None
    try:
        check_json_schema(schema, "at", strict=strict)
    except PydanticCustomError as error:
        refused = error.type
    assert refused in (None, "invalid_value")
