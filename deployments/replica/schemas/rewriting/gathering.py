"""Gathers what must hold together: follows references, joins `allOf`, and deals out what holds one way or another."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deployments.replica.schemas.rewriting.disjoint import are_disjoint
from deployments.replica.schemas.rewriting.document import Document
from deployments.replica.schemas.rewriting.negation import negated, options
from deployments.replica.schemas.rewriting.parts import Part
from deployments.replica.schemas.rewriting.refusal import SchemaRefused
from deployments.replica.schemas.rewriting.values import DRAFT_2020

MAX_ALTERNATIVES = 256
ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
_BRANCHING = ("anyOf", "oneOf", "not", "if", "dependencies", "dependentRequired", "dependentSchemas")


@dataclass
class Together:
    """Parts that all hold. Their references are followed, and one of each part's alternatives is chosen.

    `below` has, for each, those that hold because it does: what they say of properties and items, it has evaluated.
    """

    parts: dict[Part, None] = field(default_factory=dict)
    below: dict[Part, list[Part]] = field(default_factory=dict)
    types: frozenset[str] = ALL_TYPES

    def copy(self) -> "Together":
        """Return one that can be changed for itself."""
        return Together(dict(self.parts), {part: list(below) for part, below in self.below.items()}, self.types)

    @property
    def listing(self) -> tuple[Part, str, list[Any]] | None:
        """A part that lists all values with `const` or `enum`, that word and the values; None where there is none."""
        for part in self.parts:
            if "const" in part.schema:
                return part, "const", [part.schema["const"]]
            if "enum" in part.schema:
                return part, "enum", part.schema["enum"]
        return None

    def evaluated_by(self, part: Part) -> list[Part]:
        """Return a part and all that hold because of it."""
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


def alternatives(document: Document, parts: Iterable[Part]) -> list[Together]:
    """Return the ways in which some parts can hold together; none where their types exclude each other.

    Raises:
        SchemaRefused: there are too many, or one cannot be said.
    """
    found: list[Together] = []
    first = next(iter(parts), document.root)
    for together in _deal(document, Together(), [(None, part) for part in parts], []):
        found.append(together)
        if len(found) > MAX_ALTERNATIVES:
            raise SchemaRefused(first.place, "has too many combinations of alternatives. Use fewer.")
    return found


def _deal(
    document: Document,
    together: Together,
    pending: list[tuple[Part | None, Part]],
    choices: list[_Choice],
) -> Iterator[Together]:
    choices = list(choices)
    while pending:
        above, part = pending.pop(0)
        if above is not None:
            together.below.setdefault(above, []).append(part)
        if part in together.parts or part.schema is True:
            continue
        if part.schema is False:
            return
        together.parts[part] = None
        schema = part.schema
        together.types = _shared(together.types, schema.get("type"))
        if not together.types:
            return
        for word in ("$ref", "$dynamicRef"):
            if word in schema and (word == "$ref" or DRAFT_2020 in document.drafts):
                pending.append((part, document.target(part, word)))
        pending += [(part, document.child(part, "allOf", index)) for index in range(len(schema.get("allOf", ())))]
        for word in _BRANCHING:
            if word in schema:
                choices += _choices(document, part, word)
    if not choices:
        yield together
        return
    choice, *others = choices
    # What must not hold evaluates nothing, and no more does what the newer draft does not know.
    above = None if choice.word in ("not", "dependencies") else choice.part
    for option in choice.options:
        yield from _deal(document, together.copy(), [(above, part) for part in option], others)


def _shared(types: frozenset[str], wanted: object) -> frozenset[str]:
    """Return the types that are among both; integers are numbers."""
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
    """Return the ways in which what depends on a property holds: it is not there, or what depends on it is so."""
    place = (*part.place, word, name)
    wanted = part.schema[word][name]
    absent = document.made({"properties": {name: False}}, place)
    if isinstance(wanted, list):
        return [[document.made({"type": "object", "required": [name, *wanted]}, place)], [absent]]
    there = document.made({"type": "object", "required": [name]}, place)
    return [[there, document.child(part, word, name)], [absent]]


def _one_of(document: Document, part: Part) -> list[list[Part]]:
    """Return each branch with what makes the others fail, where they do not exclude each other anyway."""
    branches = [document.child(part, "oneOf", index) for index in range(len(part.schema["oneOf"]))]
    found = []
    for branch in branches:
        if branch.schema is False:
            continue
        others = [other for other in branches if other is not branch and not are_disjoint(document, branch, other)]
        found.append([branch, *(negated(document, other) for other in others)])
    return found
