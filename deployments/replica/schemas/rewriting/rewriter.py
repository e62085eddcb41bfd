"""Rewrites a schema: each node of the result stands for the values that fit some parts of the schema together."""

from typing import Any

from deployments.replica.schemas.rewriting.arrays import array_node
from deployments.replica.schemas.rewriting.document import ALL_TYPES, Document
from deployments.replica.schemas.rewriting.gathering import Conjunction, alternatives
from deployments.replica.schemas.rewriting.nodes import AnyOf, Array, Graph, Leaf, Node, Object
from deployments.replica.schemas.rewriting.numbers import number_forms
from deployments.replica.schemas.rewriting.objects import object_node
from deployments.replica.schemas.rewriting.parts import Part, Place, SchemaRefused
from deployments.replica.schemas.rewriting.strings import string_form
from deployments.replica.schemas.rewriting.values import same, type_of

_MAX_NODES = 20_000
_KEYWORDS = {
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
    "string": {"minLength", "maxLength", "pattern", "format"},
    "array": {"items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minItems", "maxItems",
              "uniqueItems"},
    "object": {"properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames",
               "required", "minProperties", "maxProperties"},
    "boolean": set(),
    "null": set(),
}  # fmt: skip
"""The keywords about each type."""
_CONSTRAINTS = {"$ref", "$dynamicRef", "type", "const", "enum", "allOf", "anyOf", "oneOf", "not", "if"}.union(
    *_KEYWORDS.values()
)


def rewrite(schema: Any, prefix: str = "", *, is_call: bool = False) -> dict[str, Any]:
    """Return a schema for some or all of the values of another, with keywords that grammars keep.

    `prefix` starts the names of its definitions, so that several schemas can share one namespace. The values of a call
    are objects, and its strings are written without escapes, as not every model writes calls in JSON.

    Raises:
        SchemaRefused: a keyword cannot be kept, or no value fits.
    """
    try:
        return _Rewriter(Document(schema), is_call).rewritten(prefix)
    except RecursionError:
        raise SchemaRefused((), "is too complex. Use fewer levels within one another.") from None


class _Rewriter:
    def __init__(self, document: Document, is_call: bool) -> None:
        self.document = document
        self._is_call = is_call
        self._nodes: list[Node] = []
        self._numbers: dict[frozenset[Part], int] = {}
        self._pending: list[tuple[int, list[Part]]] = []
        self._emptied: Place | None = None

    def rewritten(self, prefix: str) -> dict[str, Any]:
        """Return the schema of the document's root."""
        kind = [self.document.made({"type": "object"}, ())] if self._is_call else []
        root = self.node([self.document.root, *kind])
        while self._pending:
            number, parts = self._pending.pop()
            self._nodes[number] = AnyOf(self._options(parts))
        graph = Graph(self._nodes, root, prefix)
        if not graph.has_values:
            raise SchemaRefused(
                self._emptied or self._place_of([self.document.root]),
                "leaves no possible value beside the rest of the schema.",
            )
        return graph.schema()

    def node(self, parts: list[Part]) -> int:
        """Return the number of the node of the values that fit all parts."""
        wanted = frozenset(part for part in parts if part.schema is not True)
        number = self._numbers.get(wanted)
        if number is None:
            number = self._numbers[wanted] = self.add(AnyOf([]))
            self._pending.append((number, list(dict.fromkeys(part for part in parts if part in wanted))))
        return number

    def add(self, node: Node) -> int:
        """Add a node, and return its number."""
        if len(self._nodes) >= _MAX_NODES:
            raise SchemaRefused((), "is too complex. Use fewer alternatives within one another.")
        self._nodes.append(node)
        return len(self._nodes) - 1

    def literal(self, value: Any) -> int:
        """Add the node of one value, and return its number."""
        if isinstance(value, list):
            return self.add(Array([self.literal(one) for one in value], None, len(value), len(value)))
        if isinstance(value, dict):
            names = {name: self.literal(one) for name, one in value.items()}
            return self.add(Object(names, set(value), [], 0, None))
        return self.add(Leaf({"const": value}))

    def finite(self, parts: list[Part]) -> list[Any] | None:
        """Return all values that fit all parts; None if they are not listed."""
        found: list[Any] = []
        for conjunction in alternatives(self.document, parts):
            values = self._values(conjunction)
            if values is None:
                return None
            found += [value for value in values if not any(same(value, other) for other in found)]
        return found

    def _options(self, parts: list[Part]) -> list[int]:
        options: list[int] = []
        found = alternatives(self.document, parts)
        if not found:
            self._emptied = self._emptied or self._place_of(parts)
        for conjunction in found:
            values = self._values(conjunction)
            if values is not None:
                options += self._listed(values)
                if not values and conjunction.listing is not None:
                    self._emptied = self._emptied or (*conjunction.listing[0].place, conjunction.listing[1])
                continue
            options += self._typed(conjunction)
        return options

    def _place_of(self, parts: list[Part]) -> Place:
        for part in parts:
            if part.schema is False or part.is_made:
                return part.place
            word = next((word for word in part.schema if word in _CONSTRAINTS), None)
            if word is not None:
                return (*part.place, word)
        return ()

    def _values(self, conjunction: Conjunction) -> list[Any] | None:
        """Return the listed values that fit; None if none are listed."""
        if conjunction.listing is None:
            return None
        listing, word, values = conjunction.listing
        values = [value for value in values if _can_be_written(value)]
        for part in conjunction.parts:
            values = self.document.validator.fitting(part, values, but_for=word if part is listing else "")
        return values

    def _listed(self, values: list[Any]) -> list[int]:
        plain = [value for value in values if not isinstance(value, list | dict)]
        options = [self.add(Leaf({"enum": plain}))] if plain else []
        return options + [self.literal(value) for value in values if isinstance(value, list | dict)]

    def _typed(self, conjunction: Conjunction) -> list[int]:
        keywords = {word for part in conjunction.parts for word in part.schema}
        if conjunction.types == ALL_TYPES and not keywords & {"$without"}.union(*_KEYWORDS.values()):
            return [self.add(Leaf({}))]
        options: list[int] = []
        for name in sorted(conjunction.types):
            options += self._of_type(name, conjunction, keywords)
        return options

    def _of_type(self, name: str, conjunction: Conjunction, keywords: set[str]) -> list[int]:
        kind = "number" if name == "integer" else name
        if not _KEYWORDS[kind] & keywords and not any(type_of(value) == kind for value in conjunction.without):
            return [self.add(Leaf({"type": name}))]
        if kind == "number":
            return [self.add(Leaf(form)) for form in number_forms(conjunction)]
        if kind == "string":
            form = string_form(conjunction, has_escapes=not self._is_call)
            return [] if form is None else [self.add(Leaf(form))]
        if kind in ("array", "object"):
            number = (array_node if kind == "array" else object_node)(self, conjunction)
            return [] if number is None else [number]
        kept = [
            value
            for value in ((True, False) if kind == "boolean" else (None,))
            if not any(same(value, one) for one in conjunction.without)
        ]
        return [self.add(Leaf({"enum": kept}))] if kept else []


def _can_be_written(value: Any) -> bool:
    """Return whether a grammar can hold a value: numbers of 64 bits, and valid Unicode."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        return value - value == 0
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    inner = value if isinstance(value, list) else [*value, *value.values()]
    return all(map(_can_be_written, inner))
