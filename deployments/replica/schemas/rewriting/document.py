"""A schema as a document: its parts, where each stands, and what its references point at."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urljoin

from deployments.replica.schemas.rewriting.forms import check_forms
from deployments.replica.schemas.rewriting.parts import Part
from deployments.replica.schemas.rewriting.refusal import Place, SchemaRefused
from deployments.replica.schemas.rewriting.values import DRAFT_7, DRAFT_2020, Judge

_DIALECTS = {"draft-07": DRAFT_7, "draft/2020-12": DRAFT_2020}
_SCHEMAS = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames",
    "then", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_MAPS = ("$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties", "properties")
MAX_PARTS = 20_000


class Document:
    """A schema whose parts are asked for by place.

    Raises:
        SchemaRefused: a word is not written as JSON Schema has it, or identifies parts in a way that is not supported.
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
        # Where nothing is stated, tuples tell: the older draft does not know the newer word, and has another meaning
        # for what stands beside it.
        if len(dialects) > 1 and has_tuples and not has_lists:
            dialects = {DRAFT_2020}
        self.drafts = {DRAFT_7} if len(dialects) > 1 and has_lists and not has_tuples else dialects
        self.root = self.at(())
        self.judge = Judge(schema, sorted(dialects))

    def at(self, place: Place) -> Part:
        """Return the part at a place that exists."""
        part = self._parts.get(place)
        if part is None:
            value = self._schema
            for step in place:
                value = value[step]
            part = self._new(place, value, place, is_made=False)
        return part

    def child(self, part: Part, *steps: str | int) -> Part:
        """Return what a part holds under some keys."""
        value = part.schema
        for step in steps:
            value = value[step]
        if isinstance(value, Part):
            return value
        return self.made(value, part.place) if part.is_made else self.at(part.place + steps)

    def made(self, schema: Any, place: Place) -> Part:
        """Return a part of words that the schema does not have, but which follow from those at a place."""
        key = json.dumps([schema, place], default=lambda part: f"\0{part.number}")
        part = self._parts.get(key)
        return self._new(key, schema, place, is_made=True) if part is None else part

    def target(self, part: Part, word: str = "$ref") -> Part:
        """Return what the reference of a part points at.

        Raises:
            SchemaRefused: there is no such part in the document.
        """
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
        """Yield the subschemas below a place, each after its words were checked."""
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
            for word in _SCHEMAS:
                if word in part and not isinstance(part[word], list):
                    pending.append(((*place, word), part[word]))
            for word in _LISTS:
                if isinstance(part.get(word), list):
                    pending.extend(((*place, word, index), one) for index, one in enumerate(part[word]))
            for word in _MAPS:
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
                # Beside a reference, draft 7 does not know it.
                self._base = "" if "$ref" in part else identity
            else:
                raise SchemaRefused((*place, "$id"), "is not supported within a schema. Use $anchor.")
        for anchor in anchors:
            if self._anchors.setdefault(anchor, place) != place:
                raise SchemaRefused(place, f"has the anchor '{anchor}', which another part has too.")
