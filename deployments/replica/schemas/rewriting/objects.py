"""Objects: the parts that hold for each named property, and for properties with free names.

A free name must not be that of a named property: the property could come twice, and its value would not be checked.
"""

import re

from deployments.replica.schemas.rewriting import patterns
from deployments.replica.schemas.rewriting.arrays import Builder
from deployments.replica.schemas.rewriting.document import Document
from deployments.replica.schemas.rewriting.expressions import in_json, read
from deployments.replica.schemas.rewriting.gathering import Conjunction, alternatives
from deployments.replica.schemas.rewriting.nodes import Object
from deployments.replica.schemas.rewriting.parts import Part, SchemaRefused
from deployments.replica.schemas.rewriting.patterns import Pattern
from deployments.replica.schemas.rewriting.strings import names_pattern


def object_node(builder: Builder, conjunction: Conjunction) -> int | None:
    """Return the node of the objects that fit all parts, or raise SchemaRefused; None if there are none."""
    if any(isinstance(value, dict) for value in conjunction.without):
        return None
    rules = _Rules(builder.document, conjunction)
    least, most = conjunction.bounds("Properties")
    if not rules.are_names_possible:
        return builder.add(Object({}, set(rules.required), [], least, most))
    listed, free = rules.free_names()
    names = {name: builder.node(rules.of(name)) for name in [*rules.names, *listed] if rules.may_be_named(name)}
    free_nodes = [(expression, builder.node(parts)) for expression, parts in free]
    # Free names may come twice, and then count as one.
    if free_nodes and least > len(rules.required) + 1:
        free_nodes = []
        if least > len(names):
            place = next((*part.place, "minProperties") for part in conjunction.parts if "minProperties" in part.schema)
            raise SchemaRefused(place, "is not supported here. Name the properties that are required.")
    return builder.add(Object(names, set(rules.required), free_nodes, least, most))


class _Rules:
    """The rules of some parts about properties."""

    def __init__(self, document: Document, conjunction: Conjunction) -> None:
        self._document = document
        self._together = conjunction
        self._parts = list(conjunction.parts)
        self._patterns: dict[tuple[Part, str], tuple[Pattern, re.Pattern[str]]] = {}
        for part in self._parts:
            for expression in part.schema.get("patternProperties", {}):
                place = (*part.place, "patternProperties", expression)
                self._patterns[part, expression] = read(expression, place), re.compile(expression)
        self.required = list(dict.fromkeys(name for part in self._parts for name in part.schema.get("required", ())))
        named = [name for part in self._parts for name in part.schema.get("properties", {})]
        self.names = list(dict.fromkeys([*named, *self.required]))
        self._of_names = [
            document.child(part, "propertyNames") for part in self._parts if "propertyNames" in part.schema
        ]

    @property
    def are_names_possible(self) -> bool:
        """Whether `propertyNames` allows any name."""
        return all(part.schema is not False for part in self._of_names)

    def may_be_named(self, name: str) -> bool:
        """Return whether `propertyNames` allows a name."""
        return all(self._document.validator.takes(part, name) for part in self._of_names)

    def of(self, name: str) -> list[Part]:
        """Return the parts that hold for a named property."""
        found = []
        for part in self._parts:
            schema = part.schema
            own = [self._document.child(part, "properties", name)] if name in schema.get("properties", {}) else []
            own += self._of_patterns(part, name)
            if not own and "additionalProperties" in schema:
                own = [self._document.child(part, "additionalProperties")]
            found += own
            if "unevaluatedProperties" in schema and not self._is_evaluated(part, name):
                found.append(self._document.child(part, "unevaluatedProperties"))
        return found

    def _of_patterns(self, part: Part, name: str) -> list[Part]:
        return [
            self._document.child(part, "patternProperties", expression)
            for expression in part.schema.get("patternProperties", {})
            if self._patterns[part, expression][1].search(name)
        ]

    def _is_evaluated(self, part: Part, name: str) -> bool:
        return any(
            name in other.schema.get("properties", {})
            or self._of_patterns(other, name)
            or self._evaluates_all(part, other)
            for other in self._together.evaluated_by(part)
            if other in self._together.parts
        )

    def _evaluates_all(self, part: Part, other: Part) -> bool:
        return "additionalProperties" in other.schema or (other is not part and "unevaluatedProperties" in other.schema)

    def _is_closed(self, part: Part) -> bool:
        """Return whether a part allows no other properties, or names some without a keyword about others."""
        schema = part.schema
        if "additionalProperties" in schema:
            return schema["additionalProperties"] is False and "patternProperties" not in schema
        if part.is_made or "patternProperties" in schema or schema.get("unevaluatedProperties", False) is not False:
            return False
        return "properties" in schema

    def free_names(self) -> tuple[list[str], list[tuple[str | None, list[Part]]]]:
        """Return further names, and the expressions of free names with the parts that hold for them."""
        if any(map(self._is_closed, self._parts)):
            return [], []
        if self._patterns:
            return [], [] if self._of_names else self._matching()
        allowed, listed = self._allowed_names()
        if listed is not None:
            return listed, []
        if self.names:
            if allowed is not None:
                return [], []
            allowed = patterns.all_but(self.names)
        expression = None if allowed is None else in_json(allowed)
        if allowed is not None and expression is None:
            return [], []
        return [], [(expression, self._of_others(None))]

    def _allowed_names(self) -> tuple[Pattern | None, list[str] | None]:
        """Return the pattern of the names that `propertyNames` allows, None for any name, or a list of the names."""
        if not self._of_names:
            return None, None
        found: list[Pattern] = []
        for conjunction in alternatives(self._document, self._of_names):
            if "string" not in conjunction.types:
                continue
            listing = conjunction.listing
            if listing is not None:
                return None, [value for value in listing[2] if isinstance(value, str)]
            pattern = names_pattern(conjunction)
            if pattern is None:
                return None, None
            found.append(pattern)
        return patterns.either(found), None

    def _matching(self) -> list[tuple[str | None, list[Part]]]:
        """Return the expressions of names that match a pattern, unless a known name matches it too."""
        found: list[tuple[str | None, list[Part]]] = []
        safe = {key: patterns.without_unsafe(pattern) for key, (pattern, _) in self._patterns.items()}
        for key, (_, pythons) in self._patterns.items():
            written = in_json(safe[key]) if safe[key] != patterns.NEVER else None
            if written is None or any(map(pythons.search, self.names)):
                continue
            parts = [
                self._document.child(part, "patternProperties", expression)
                for part, expression in safe
                if (part, expression) == key or not patterns.exclude_each_other(safe[key], safe[part, expression])
            ]
            found.append((written, [*parts, *self._of_others(key[0])]))
        return found

    def _of_others(self, owner: Part | None) -> list[Part]:
        """Return the parts that hold for a free name beside the patterns of `owner`."""
        found = []
        for part in self._parts:
            if part is not owner and "additionalProperties" in part.schema:
                found.append(self._document.child(part, "additionalProperties"))
            if "unevaluatedProperties" in part.schema:
                below = [one for one in self._together.evaluated_by(part) if one in self._together.parts]
                if owner not in below and not any(self._evaluates_all(part, one) for one in below):
                    found.append(self._document.child(part, "unevaluatedProperties"))
        return found
