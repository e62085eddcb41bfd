"""Gathers parts that must hold together: follows references, joins `allOf`, and lists the alternatives of branches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deployments.replica.schemas.rewriting.document import ALL_TYPES, Document
from deployments.replica.schemas.rewriting.negation import are_disjoint, negated, options
from deployments.replica.schemas.rewriting.parts import Part, SchemaRefused
from deployments.replica.schemas.rewriting.values import DRAFT_2020

MAX_ALTERNATIVES = 256
_BRANCHING = ("anyOf", "oneOf", "not", "if", "dependencies", "dependentRequired", "dependentSchemas")


@dataclass
class Conjunction:
    """Parts that all hold: their references are followed, and one alternative of each is chosen.

    `below` lists, for each part, the parts that it implies; it evaluates the properties and items that they name.
    """

    parts: dict[Part, None] = field(default_factory=dict)
    below: dict[Part, list[Part]] = field(default_factory=dict)
    types: frozenset[str] = ALL_TYPES

    def copy(self) -> "Conjunction":
        """Return an independent copy."""
        return Conjunction(dict(self.parts), {part: list(below) for part, below in self.below.items()}, self.types)

    @property
    def listing(self) -> tuple[Part, str, list[Any]] | None:
        """A part that lists its values, the keyword (`const` or `enum`) and the values; None if there is none."""
        for part in self.parts:
            if "const" in part.schema:
                return part, "const", [part.schema["const"]]
            if "enum" in part.schema:
                return part, "enum", part.schema["enum"]
        return None

    @property
    def without(self) -> list[Any]:
        """The values that are excluded."""
        return [value for part in self.parts for value in part.schema.get("$without", ())]

    def bounds(self, noun: str) -> tuple[int, int | None]:
        """Return the strictest `min` and `max` of a noun, such as "Items"; None is no bound."""
        least = [int(part.schema.get(f"min{noun}", 0)) for part in self.parts]
        most = [int(part.schema[f"max{noun}"]) for part in self.parts if f"max{noun}" in part.schema]
        return max(least, default=0), min(most, default=None)

    def evaluated_by(self, part: Part) -> list[Part]:
        """Return a part and all parts that it implies."""
        found, pending = {part: None}, [part]
        while pending:
            for one in self.below.get(pending.pop(), ()):
                if one not in found:
                    found[one] = None
                    pending.append(one)
        return list(found)


@dataclass(frozen=True)
class _Choice:
    part: Part
    word: str
    options: list[list[Part]]


def alternatives(document: Document, parts: Iterable[Part]) -> list[Conjunction]:
    """Return the ways in which some parts can hold together, or raise SchemaRefused if there are too many."""
    found: list[Conjunction] = []
    first = next(iter(parts), document.root)
    for conjunction in _deal(document, Conjunction(), [(None, part) for part in parts], []):
        found.append(conjunction)
        if len(found) > MAX_ALTERNATIVES:
            raise SchemaRefused(first.place, "has too many combinations of alternatives. Use fewer.")
    return found


def _deal(
    document: Document, conjunction: Conjunction, pending: list[tuple[Part | None, Part]], choices: list[_Choice]
) -> Iterator[Conjunction]:
    choices = list(choices)
    while pending:
        above, part = pending.pop(0)
        if above is not None:
            conjunction.below.setdefault(above, []).append(part)
        if part in conjunction.parts or part.schema is True:
            continue
        if part.schema is False:
            return
        conjunction.parts[part] = None
        schema = part.schema
        conjunction.types = _shared(conjunction.types, schema.get("type"))
        if not conjunction.types:
            return
        for word in ("$ref", "$dynamicRef"):
            if word in schema and (word == "$ref" or DRAFT_2020 in document.drafts):
                pending.append((part, document.target(part, word)))
        pending += [(part, document.child(part, "allOf", index)) for index in range(len(schema.get("allOf", ())))]
        for word in _BRANCHING:
            if word in schema:
                choices += _choices(document, part, word)
    if not choices:
        yield conjunction
        return
    choice, *others = choices
    # `not` evaluates nothing; nor does `dependencies`, which draft 2020-12 does not know.
    above = None if choice.word in ("not", "dependencies") else choice.part
    for option in choice.options:
        yield from _deal(document, conjunction.copy(), [(above, part) for part in option], others)


def _shared(types: frozenset[str], wanted: object) -> frozenset[str]:
    """Return the types in both sets; integers are numbers."""
    if wanted is None:
        return types
    names = {wanted} if isinstance(wanted, str) else set(wanted)  # type: ignore[call-overload]
    shared = types & names
    if "number" in types and "integer" in names and "number" not in names:
        shared |= {"integer"}
    if "integer" in types and "number" in names:
        shared |= {"integer"}
    return frozenset(shared - {"integer"} if "number" in shared else shared)


def _choices(document: Document, part: Part, word: str) -> list[_Choice]:
    schema = part.schema
    if word == "anyOf":
        branches = [document.child(part, word, index) for index in range(len(schema[word]))]
        return [_Choice(part, word, [[branch] for branch in branches if branch.schema is not False])]
    if word == "oneOf":
        return [_Choice(part, word, _one_of(document, part))]
    if word == "not":
        return [_Choice(part, word, options(document, document.child(part, "not")))]
    if word == "if":
        if "then" not in schema and "else" not in schema:
            return []
        condition = document.child(part, "if")
        then = [document.child(part, "then")] if "then" in schema else []
        otherwise = [document.child(part, "else")] if "else" in schema else []
        return [_Choice(part, word, [[condition, *then], [negated(document, condition), *otherwise]])]
    return [
        _Choice(part, word, _depending(document, part, word, name))
        for name in schema[word]
        if schema[word][name] not in ([], True)
    ]


def _depending(document: Document, part: Part, word: str, name: str) -> list[list[Part]]:
    """Return the alternatives of a dependency: the property is absent, or its dependency holds."""
    place = (*part.place, word, name)
    wanted = part.schema[word][name]
    absent = document.made({"properties": {name: False}}, place)
    if isinstance(wanted, list):
        return [[document.made({"type": "object", "required": [name, *wanted]}, place)], [absent]]
    there = document.made({"type": "object", "required": [name]}, place)
    return [[there, document.child(part, word, name)], [absent]]


def _one_of(document: Document, part: Part) -> list[list[Part]]:
    """Return each branch with the negations of the other branches, unless they exclude each other anyway."""
    branches = [document.child(part, "oneOf", index) for index in range(len(part.schema["oneOf"]))]
    found = []
    for branch in branches:
        if branch.schema is False:
            continue
        others = [other for other in branches if other is not branch and not are_disjoint(document, branch, other)]
        found.append([branch, *(negated(document, other) for other in others)])
    return found
