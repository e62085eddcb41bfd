"""A schema as a document: its parts, where they stand, what its references point at, and which values keywords have."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from deployments.replica.schemas.rewriting.parts import Part, Place, SchemaRefused
from deployments.replica.schemas.rewriting.values import DRAFT_7, DRAFT_2020, Validator

_DIALECTS = {"draft-07": DRAFT_7, "draft/2020-12": DRAFT_2020}
_HOLD_SCHEMA = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames",
    "then", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_HOLD_LIST = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_HOLD_NAMED = ("$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties")
MAX_PARTS = 20_000
TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")
ALL_TYPES = frozenset(TYPES) - {"integer"}
"""Integers are numbers."""


class Document:
    """A schema, and its parts by place.

    Raises:
        SchemaRefused: a keyword has a wrong value, or identifies parts in a way that is not supported.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._parts: dict[Place | str, Part] = {}
        self._anchors: dict[str, Place] = {}
        self._dynamic: dict[str, list[Place]] = {}
        stated = schema.get("$schema") if isinstance(schema, dict) else None
        self._base = ""
        dialects = {DRAFT_7, DRAFT_2020}
        if isinstance(stated, str):
            dialects = {draft for name, draft in _DIALECTS.items() if name in stated} or dialects
        has_tuples = has_lists = False
        self._walked: set[Place] = set()
        for place, part in self._walk():
            has_tuples = has_tuples or "prefixItems" in part
            has_lists = has_lists or isinstance(part.get("items"), list)
            self._register(part, place)
        # Without `$schema`, tuples decide: draft 7 ignores `prefixItems`, and reads `items` beside it differently.
        if len(dialects) > 1 and has_tuples and not has_lists:
            dialects = {DRAFT_2020}
        self.drafts = {DRAFT_7} if len(dialects) > 1 and has_lists and not has_tuples else dialects
        self.root = self.at(())
        self.validator = Validator(schema, sorted(dialects))

    def at(self, place: Place) -> Part:
        """Return the part at an existing place."""
        part = self._parts.get(place)
        if part is None:
            value = self._schema
            for step in place:
                value = value[step]
            part = self._new(place, value, place, is_made=False)
        return part

    def child(self, part: Part, *steps: str | int) -> Part:
        """Return the part below a part, by its keys."""
        value = part.schema
        for step in steps:
            value = value[step]
        if isinstance(value, Part):
            return value
        return self.made(value, part.place) if part.is_made else self.at(part.place + steps)

    def made(self, schema: Any, place: Place) -> Part:
        """Return a derived part, whose keywords follow from those at a place."""
        key = json.dumps([schema, place], default=lambda part: f"\0{part.number}")
        part = self._parts.get(key)
        return self._new(key, schema, place, is_made=True) if part is None else part

    def target(self, part: Part, word: str = "$ref") -> Part:
        """Return the part that the reference of a part points at, or raise SchemaRefused."""
        reference = part.schema[word]
        where = (*part.place, word)
        if word == "$dynamicRef":
            places = self._dynamic.get(reference.removeprefix("#"), [])
            if not reference.startswith("#"):
                raise SchemaRefused(where, "is not supported here. Use $ref.")
            if len(places) > 1:
                raise SchemaRefused(where, "is not supported where several anchors have its name. Use $ref.")
            if places:
                return self.at(places[0])
        address, _, fragment = reference.partition("#")
        if address and urljoin(self._base, address) != self._base.partition("#")[0]:
            raise SchemaRefused(where, "points out of the schema. Put what it points at under $defs.")
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get(fragment)
            if found is None:
                raise SchemaRefused(where, "points at an anchor that the schema does not have.")
            return self.at(found)
        return self._pointed_at(fragment, where)

    def _pointed_at(self, pointer: str, where: Place) -> Part:
        value, place = self._schema, []
        for step in pointer.split("/")[1:]:
            key: str | int = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
                key = int(step)
            elif not isinstance(value, dict) or key not in value:
                raise SchemaRefused(where, "points at a part that the schema does not have.")
            value = value[key]
            place.append(key)
        if not isinstance(value, dict | bool):
            raise SchemaRefused(where, "points at what is no schema.")
        if isinstance(value, dict) and tuple(place) not in self._walked:
            for below, part in self._walk(tuple(place)):
                if "$id" in part:
                    raise SchemaRefused((*below, "$id"), "is not supported within a schema. Use $anchor.")
        return self.at(tuple(place))

    def _new(self, key: Place | str, schema: Any, place: Place, *, is_made: bool) -> Part:
        if len(self._parts) >= MAX_PARTS:
            raise SchemaRefused((), "is too complex. Use fewer alternatives within one another.")
        part = self._parts[key] = Part(len(self._parts), schema, place, is_made=is_made)
        return part

    def _walk(self, start: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
        """Yield the subschemas below a place, each after its keywords were checked."""
        value = self._schema
        for step in start:
            value = value[step]
        pending: list[tuple[Place, Any]] = [(start, value)]
        while pending:
            place, part = pending.pop()
            if not isinstance(part, dict):
                if not isinstance(part, bool):
                    raise SchemaRefused(place, "is no schema, which is an object or a boolean.")
                continue
            check_forms(part, place)
            self._walked.add(place)
            yield place, part
            for word in _HOLD_SCHEMA:
                if word in part and not isinstance(part[word], list):
                    pending.append(((*place, word), part[word]))
            for word in _HOLD_LIST:
                if isinstance(part.get(word), list):
                    pending.extend(((*place, word, index), one) for index, one in enumerate(part[word]))
            for word in _HOLD_NAMED:
                if isinstance(part.get(word), dict):
                    pending.extend(
                        ((*place, word, key), one)
                        for key, one in part[word].items()
                        if not (word == "dependencies" and isinstance(one, list))
                    )

    def _register(self, part: dict[str, Any], place: Place) -> None:
        anchors = [part[word] for word in ("$anchor", "$dynamicAnchor") if word in part]
        if "$dynamicAnchor" in part:
            self._dynamic.setdefault(part["$dynamicAnchor"], []).append(place)
        identity = part.get("$id")
        if identity is not None:
            if identity.startswith("#"):
                anchors.append(identity[1:])
            elif not place:
                # Draft 7 ignores it beside a reference.
                self._base = "" if "$ref" in part else identity
            else:
                raise SchemaRefused((*place, "$id"), "is not supported within a schema. Use $anchor.")
        for anchor in anchors:
            if self._anchors.setdefault(anchor, place) != place:
                raise SchemaRefused(place, f"has the anchor '{anchor}', which another part has too.")


_Test = Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict | bool)


def _are_types(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else bool(value) and _list_of(lambda one: one in TYPES)(value)


def _list_of(test: _Test) -> _Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _object_of(test: _Test) -> _Test:
    return lambda value: isinstance(value, dict) and all(map(test, value.values()))


_are_schemas, _are_names = _list_of(_is_schema), _list_of(_is_text)


def _is_schema_or_names(value: Any) -> bool:
    return _is_schema(value) or _are_names(value)


_FORMS: dict[str, tuple[_Test, str]] = {
    word: (test, form)
    for words, test, form in (
        ("minimum maximum exclusiveMinimum exclusiveMaximum", _is_number, "a number"),
        ("minLength maxLength minItems maxItems", _is_count, "a whole number that is not negative"),
        ("minProperties maxProperties minContains maxContains", _is_count, "a whole number that is not negative"),
        ("pattern format $ref $dynamicRef $id $anchor $dynamicAnchor", _is_text, "a string"),
        ("not if then else contains propertyNames", _is_schema, "a schema"),
        ("additionalProperties unevaluatedProperties additionalItems unevaluatedItems", _is_schema, "a schema"),
        ("allOf anyOf oneOf", lambda value: bool(value) and _are_schemas(value), "an array of schemas"),
        ("prefixItems", _are_schemas, "an array of schemas"),
        ("items", lambda value: _is_schema(value) or _are_schemas(value), "a schema or an array of schemas"),
        ("properties patternProperties", _object_of(_is_schema), "an object of schemas"),
        ("dependentSchemas $defs definitions", _object_of(_is_schema), "an object of schemas"),
        ("dependencies", _object_of(_is_schema_or_names), "an object of schemas or arrays of strings"),
        ("dependentRequired", _object_of(_are_names), "an object of arrays of strings"),
        ("required", _are_names, "an array of strings"),
        ("type", _are_types, f"one or more of {', '.join(TYPES)}"),
        ("enum", lambda value: isinstance(value, list) and bool(value), "an array with at least one value"),
        ("uniqueItems", lambda value: isinstance(value, bool), "true or false"),
        ("multipleOf", lambda value: _is_number(value) and value > 0, "a number above 0"),
    )
    for word in words.split()
}


def check_forms(schema: dict[str, Any], place: Place) -> None:
    """Raise SchemaRefused if a keyword of a subschema has a wrong value, or is of an unsupported draft."""
    for word, value in schema.items():
        if word == "$recursiveRef":
            raise SchemaRefused((*place, word), "is not supported. Use $ref.")
        form = _FORMS.get(word)
        if form is not None and not form[0](value):
            raise SchemaRefused((*place, word), f"must be {form[1]}.")
