"""Arrays: the parts that hold for each item."""

from itertools import combinations
from typing import Any, Protocol

from deployments.replica.schemas.rewriting.document import Document
from deployments.replica.schemas.rewriting.gathering import Conjunction, alternatives
from deployments.replica.schemas.rewriting.negation import are_disjoint, negated
from deployments.replica.schemas.rewriting.nodes import AnyOf, Array, Node
from deployments.replica.schemas.rewriting.parts import Part, SchemaRefused
from deployments.replica.schemas.rewriting.values import DRAFT_7, DRAFT_2020

_MAX_FIRST = 200
_MAX_UNIQUE = 6
_REST = ("items", "additionalItems", "unevaluatedItems")


class Builder(Protocol):
    """Creates the nodes of parts and of values."""

    document: Document

    def node(self, parts: list[Part]) -> int:
        """Return the number of the node of the values that fit all parts."""

    def literal(self, value: Any) -> int:
        """Return the number of the node of one value."""

    def add(self, node: Node) -> int:
        """Add a node, and return its number."""

    def finite(self, parts: list[Part]) -> list[Any] | None:
        """Return all values that fit all parts; None if they are not listed."""


def array_node(builder: Builder, conjunction: Conjunction) -> int | None:
    """Return the node of the arrays that fit all parts, or raise SchemaRefused; None if there are none."""
    items = _Items(builder.document, conjunction)
    least, most = conjunction.bounds("Items")
    if any(isinstance(value, list) for value in conjunction.without):
        return None
    for part in conjunction.parts:
        if "contains" in part.schema:
            least = max(least, items.hold_in_some(part))
    if len(items.first) > _MAX_FIRST:
        raise SchemaRefused(items.place, "has too many items of their own. Use fewer.")
    unique = next((part for part in conjunction.parts if part.schema.get("uniqueItems")), None)
    if unique is not None and (most is None or most > 1):
        several = _unique_values(builder, items, least, most)
        if several is not None:
            return several
        pairs = combinations(items.first[:most], 2)
        if not items.first or not all(_exclude(builder.document, one, other) for one, other in pairs):
            place = (*unique.place, "uniqueItems")
            raise SchemaRefused(place, "is not supported for these items. Use maxItems 1, or an enum of few values.")
        items.rest = None
    rest = items.rest if items.rest is not None and (most is None or most > len(items.first)) else None
    return builder.add(
        Array([builder.node(parts) for parts in items.first], None if rest is None else builder.node(rest), least, most)
    )


class _Items:
    """The parts that hold for each of the first items, and for the rest; `rest` is None if no more may follow."""

    def __init__(self, document: Document, conjunction: Conjunction) -> None:
        self._document = document
        self.place = next((part.place for part in conjunction.parts if "prefixItems" in part.schema), ())
        lists = {part: self._list(part) for part in conjunction.parts}
        length = max(map(len, lists.values()), default=0)
        self.first: list[list[Part]] = [[] for _ in range(length)]
        self.rest: list[Part] | None = []
        self._has_rest = False
        for part, own in lists.items():
            for index in range(length):
                self.first[index] += [own[index]] if index < len(own) else self._following(part)
            self.rest += self._following(part)
            self._add_unevaluated(part, conjunction, lists)
        # Tuples stay closed, as always here, unless a keyword is about further items.
        if length and not self._has_rest and not self.rest and not self._needs_more(conjunction, length):
            self.rest = None

    def _needs_more(self, conjunction: Conjunction, length: int) -> bool:
        return any(part.schema.get("minItems", 0) > length or "contains" in part.schema for part in conjunction.parts)

    def _list(self, part: Part) -> list[Part]:
        for word in ("prefixItems", "items"):
            if isinstance(part.schema.get(word), list) and (word == "items" or DRAFT_2020 in self._document.drafts):
                return [self._document.child(part, word, index) for index in range(len(part.schema[word]))]
        return []

    def _following(self, part: Part) -> list[Part]:
        word = "additionalItems" if isinstance(part.schema.get("items"), list) else "items"
        if word not in part.schema:
            return []
        self._has_rest = True
        return [self._document.child(part, word)]

    def _add_unevaluated(self, part: Part, conjunction: Conjunction, lists: dict[Part, list[Part]]) -> None:
        """Apply `unevaluatedItems` to the items that the part, and the parts that it implies, do not evaluate."""
        if "unevaluatedItems" not in part.schema:
            return
        others = [other for other in conjunction.evaluated_by(part) if other in lists]
        if any(
            self._following(other) or (other is not part and "unevaluatedItems" in other.schema) for other in others
        ):
            return
        self._has_rest = True
        wanted = self._document.child(part, "unevaluatedItems")
        for index in range(max(len(lists[other]) for other in others), len(self.first)):
            self.first[index].append(wanted)
        if self.rest is not None:
            self.rest.append(wanted)

    def hold_in_some(self, part: Part) -> int:
        """Apply `contains` to the first items that allow it; return the least number of items, or raise."""
        schema = part.schema
        wanted = self._document.child(part, "contains")
        number = int(schema.get("minContains", 1))
        if DRAFT_7 in self._document.drafts:
            number = max(1, number)
        most = int(schema["maxContains"]) if "maxContains" in schema and DRAFT_2020 in self._document.drafts else None
        taken: list[int] = []
        index = 0
        while len(taken) < number and index <= _MAX_FIRST and (index < len(self.first) or self.rest is not None):
            if index == len(self.first):
                self.first.append(list(self.rest or ()))
            if wanted not in self.first[index] and alternatives(self._document, [*self.first[index], wanted]):
                self.first[index].append(wanted)
                taken.append(index)
            elif index >= len(self.first) - 1 and self.rest is not None and not self._may_follow(wanted):
                break
            index += 1
        if len(taken) < number:
            raise SchemaRefused((*part.place, "contains"), "leaves no possible value here. Say what the items are.")
        if most is not None:
            other = negated(self._document, wanted)
            for place, parts in enumerate(self.first):
                if place not in taken[:most]:
                    parts.append(other)
            if self.rest is not None:
                self.rest = [*self.rest, other]
        return max(taken, default=-1) + 1

    def _may_follow(self, wanted: Part) -> bool:
        return bool(alternatives(self._document, [*(self.rest or ()), wanted]))


def _exclude(document: Document, ones: list[Part], others: list[Part]) -> bool:
    return any(are_disjoint(document, one, other) for one in ones for other in others)


def _unique_values(builder: Builder, items: _Items, least: int, most: int | None) -> int | None:
    """Return the node of arrays without repetition, in one order, if the items have few values; None otherwise."""
    if items.first or items.rest is None:
        return None
    values = builder.finite(items.rest)
    if values is None or len(values) > _MAX_UNIQUE:
        return None
    nodes = [builder.literal(value) for value in values]
    sizes = range(least, min(len(values), len(values) if most is None else most) + 1)
    return builder.add(
        AnyOf(
            [builder.add(Array(list(some), None, size, size)) for size in sizes for some in combinations(nodes, size)]
        )
    )
