"""Objects: which parts hold for each property that is named, and for those whose names are free.

A free name must never be one that is named, as it would come twice then, and its value would be held to less.
"""

import re

from deployments.replica.schemas.rewriting import patterns
from deployments.replica.schemas.rewriting.arrays import Builder
from deployments.replica.schemas.rewriting.document import Document
from deployments.replica.schemas.rewriting.gathering import Together, alternatives
from deployments.replica.schemas.rewriting.nodes import Object
from deployments.replica.schemas.rewriting.parts import Part
from deployments.replica.schemas.rewriting.patterns import Pattern
from deployments.replica.schemas.rewriting.refusal import SchemaRefused
from deployments.replica.schemas.rewriting.strings import names_pattern, read_pattern
from deployments.replica.schemas.rewriting.written import in_json


def object_node(builder: Builder, together: Together) -> int | None:
    """Return the node of the objects that some parts take together; None where there are none.

    Raises:
        SchemaRefused: a word cannot be kept.
    """
    if any(isinstance(value, dict) for part in together.parts for value in part.schema.get("$without", ())):
        return None
    rules = _Rules(builder.document, together)
    least = max((int(part.schema.get("minProperties", 0)) for part in together.parts), default=0)
    most = min(
        (int(part.schema["maxProperties"]) for part in together.parts if "maxProperties" in part.schema), default=None
    )
    if not rules.are_names_possible:
        return builder.add(Object({}, set(rules.required), [], least, most))
    listed, free = rules.free_names()
    names = {name: builder.node(rules.of(name)) for name in [*rules.names, *listed] if rules.may_be_named(name)}
    free_nodes = [(expression, builder.node(parts)) for expression, parts in free]
    # Free names may come twice, and then count as one.
    if free_nodes and least > len(rules.required) + 1:
        free_nodes = []
        if least > len(names):
            place = next((*part.place, "minProperties") for part in together.parts if "minProperties" in part.schema)
            raise SchemaRefused(place, "is not supported here. Name the properties that are required.")
    return builder.add(Object(names, set(rules.required), free_nodes, least, most))


class _Rules:
    """What parts say of properties."""

    def __init__(self, document: Document, together: Together) -> None:
        self._document = document
        self._together = together
        self._parts = [part for part in together.parts if isinstance(part.schema, dict)]
        self._patterns: dict[tuple[Part, str], re.Pattern[str]] = {}
        for part in self._parts:
            for expression in part.schema.get("patternProperties", {}):
                place = (*part.place, "patternProperties", expression)
                read_pattern(expression, place)
                self._patterns[part, expression] = re.compile(expression)
        self.required = list(dict.fromkeys(name for part in self._parts for name in part.schema.get("required", ())))
        named = [name for part in self._parts for name in part.schema.get("properties", {})]
        self.names = list(dict.fromkeys([*named, *self.required]))
        self._of_names = [
            document.child(part, "propertyNames") for part in self._parts if "propertyNames" in part.schema
        ]

    @property
    def are_names_possible(self) -> bool:
        """Whether `propertyNames` takes any name."""
        return all(part.schema is not False for part in self._of_names)

    def may_be_named(self, name: str) -> bool:
        """Return whether `propertyNames` takes a name."""
        return all(self._document.judge.takes(part, name) for part in self._of_names)

    def of(self, name: str) -> list[Part]:
        """Return the parts that hold for a property that is named."""
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
            if self._patterns[part, expression].search(name)
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
        """Return whether a part takes no property but those that it has a word for.

        Where it names some and says nothing of others, they are not offered either.
        """
        schema = part.schema
        if "additionalProperties" in schema:
            return schema["additionalProperties"] is False and "patternProperties" not in schema
        if part.is_made or "patternProperties" in schema or schema.get("unevaluatedProperties", False) is not False:
            return False
        return "properties" in schema

    def free_names(self) -> tuple[list[str], list[tuple[str | None, list[Part]]]]:
        """Return more names that may be there, and the expressions of free names with the parts that hold for those."""
        if any(map(self._is_closed, self._parts)):
            return [], []
        expressions = [(part, expression) for part, expression in self._patterns]
        if expressions:
            return [], [] if self._of_names else self._matching(expressions)
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
        """Return the pattern of the names that `propertyNames` takes, None for any, or those names themselves."""
        if not self._of_names:
            return None, None
        found: list[Pattern] = []
        for together in alternatives(self._document, self._of_names):
            if "string" not in together.types:
                continue
            listing = together.listing
            if listing is not None:
                return None, [value for value in listing[2] if isinstance(value, str)]
            pattern = names_pattern(together)
            if pattern is None:
                return None, None
            found.append(pattern)
        return patterns.either(found), None

    def _matching(self, expressions: list[tuple[Part, str]]) -> list[tuple[str | None, list[Part]]]:
        """Return the expressions of names that match a pattern, unless a name that is known matches it, too."""
        found: list[tuple[str | None, list[Part]]] = []
        read = {key: patterns.without_unsafe(patterns.read(key[1])) for key in expressions}
        for key in expressions:
            part = key[0]
            written = in_json(read[key]) if read[key] != patterns.NEVER else None
            if written is None or any(self._patterns[key].search(name) for name in self.names):
                continue
            parts = [
                self._document.child(other, "patternProperties", text)
                for other, text in expressions
                if (other, text) == key or not patterns.exclude_each_other(read[key], read[other, text])
            ]
            found.append((written, [*parts, *self._of_others(part)]))
        return found

    def _of_others(self, owner: Part | None) -> list[Part]:
        """Return what holds for a free name beside the patterns of a part."""
        found = []
        for part in self._parts:
            if part is not owner and "additionalProperties" in part.schema:
                found.append(self._document.child(part, "additionalProperties"))
            if "unevaluatedProperties" in part.schema:
                below = [one for one in self._together.evaluated_by(part) if one in self._together.parts]
                if owner not in below and not any(self._evaluates_all(part, one) for one in below):
                    found.append(self._document.child(part, "unevaluatedProperties"))
        return found
