"""Schemas as rows."""

from typing import Any

import pytest

from serve_app.documentation.fields import Field, FieldReader

LEAF, TREE = {"$ref": "#/components/schemas/Leaf"}, {"$ref": "#/components/schemas/Tree"}
SCHEMAS = {
    "Leaf": {"description": "A leaf.", "properties": {"color": {"type": "string"}}, "required": ["color"]},
    "Tree": {"properties": {"leaf": LEAF, "parent": TREE}},
    "Color": {"enum": ["red", "green"]},
}


def read(about: dict[str, Any], *, is_required: bool = False, depth: int = 3) -> Field:
    return FieldReader(SCHEMAS, depth).field_of("a", about, is_required=is_required)


@pytest.mark.parametrize(
    ("about", "kind"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 128}, "integer, 1 to 128"),
        ({"type": "integer", "minimum": 1, "maximum": 2**31 - 1}, "integer, at least 1"),
        ({"type": "number", "maximum": 2}, "number, at most 2"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, "string or array of string"),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 4}, "array of integer, at most 4"),
        ({"const": "24h"}, '`"24h"`'),
        ({"$ref": "#/components/schemas/Color"}, '`"red"` or `"green"`'),
        ({"type": "string", "format": "binary"}, "file"),
        ({}, "any"),
    ],
)
def test_types_in_words(about: dict[str, Any], kind: str) -> None:
    assert read(about).kind == kind


def test_a_field_with_one_object_has_its_description_and_fields() -> None:
    field = read(LEAF)
    assert field.description == "A leaf."
    assert [(one.name, one.is_required) for one in field.objects[0].fields] == [("color", True)]


def test_an_object_is_not_shown_within_itself() -> None:
    (tree,) = read(TREE).objects
    assert {field.name: [one.name for one in field.objects] for field in tree.fields} == {
        "leaf": ["Leaf"],
        "parent": [],
    }


def test_objects_are_shown_to_a_depth() -> None:
    (tree,) = read(TREE, depth=1).objects
    assert [field.objects for field in tree.fields] == [(), ()]


def test_a_union_has_all_of_its_objects() -> None:
    union = {
        "oneOf": [
            {"$ref": "#/components/schemas/Leaf"},
            {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}},
        ]
    }
    assert [one.name for one in read(union).objects] == ["Leaf", "Tree"]


def test_a_required_field_has_no_default() -> None:
    assert read({"default": 1}).default == "1"
    assert read({"default": 1}, is_required=True).default == ""
    assert read({"default": None}).default == ""
