"""Answers in JSON: a text and a simple schema go in, an object of that schema comes out."""

import json
from dataclasses import dataclass
from typing import Any

from tests.demo_model.dialogue import Dialogue
from tests.demo_model.exchange import Exchange
from tests.demo_model.words import Draw

# What stands in the texts: its type, and the names that a schema may give it.
_KINDS = {
    "name": ("string", ("name", "person", "who")), "city": ("string", ("city", "place", "town", "home")),
    "age": ("integer", ("age", "years")), "thing": ("string", ("thing", "product", "item")),
    "number": ("integer", ("number", "count", "quantity", "amount")),
}  # fmt: skip
_TYPES = {name: type_ for type_, names in _KINDS.values() for name in names}


@dataclass(frozen=True, slots=True)
class _Subject:
    """A kind of text: how it is put, and the fields that stand in it."""

    texts: tuple[str, ...]
    fields: tuple[str, ...]


_SUBJECTS = (
    _Subject(
        ("{name} is {age} years old and lives in {city}.", "{name}, {age}, is from {city}.",
         "In {city} lives {name}, who is {age}.", "{name} from {city} is {age} years old.",
         "My name is {name}, I am {age} and live in {city}.", "Meet {name} from {city}, age {age}."),
        ("name", "age", "city")),
    _Subject(
        ("{name} lives in {city}.", "{name} is from {city}.", "In {city} lives {name}.", "{name} has a home in {city}.",
         "{city} is the home of {name}.", "The home of {name} is {city}."),
        ("name", "city")),
    _Subject(
        ("{name} is {age} years old.", "{name} is {age}.", "{age} years old is {name}.", "The age of {name} is {age}.",
         "{name} turned {age} today.", "{name}, {age} years."),
        ("name", "age")),
    _Subject(
        ("{name} bought {number} times {thing}.", "{name} orders {number} of {thing}.",
         "{name} wants {thing}, {number} of them.", "{number} of {thing} for {name}.",
         "An order of {name}: {number} {thing}.", "{name} takes {number} {thing}."),
        ("name", "thing", "number")),
    _Subject(
        ("There are {number} of {thing} in {city}.", "{city} has {number} of {thing}.",
         "In {city} we count {number} {thing}.", "We saw {number} of {thing} in {city}.",
         "{number} {thing} came to {city}."),
        ("thing", "number", "city")),
)  # fmt: skip
_ASK = (
    "Answer in JSON with the schema {s}: {t}", "Write as JSON with the schema {s}: {t}", "{t} Answer with JSON: {s}",
    "{t} Put this into JSON with the schema {s}", "Schema: {s} Text: {t} Answer in JSON.",
    "Read: {t} Give me JSON of this schema: {s}", "Extract JSON. Schema: {s} Text: {t}",
    "{t} Give me that as JSON of the schema {s}",
)  # fmt: skip
_SYSTEMS = (
    "Answer in JSON with the schema {s}", "You write JSON with the schema {s}", "JSON schema of answers: {s}",
    "Always answer with JSON of the schema {s}", "Put what the user says into JSON: {s}", "Schema: {s} Answer in JSON.",
    "You turn texts into JSON of the schema {s}", "Reply in JSON with the schema {s}",
)  # fmt: skip


def _named(draw: Draw, subject: _Subject) -> dict[str, str]:
    """Return some of a subject's fields in any order, each with the name that the schema gives it."""
    fields = list(subject.fields)
    draw.random.shuffle(fields)
    if draw.chance(0.3):
        fields = fields[: max(1, len(fields) - 1)]
    return {field: field if draw.chance(0.6) else draw.random.choice(_KINDS[field][1]) for field in fields}


def _schema(draw: Draw, names: list[str]) -> str:
    style = draw.random.randrange(3)
    if style == 0:
        return json.dumps({name: _TYPES[name] for name in names})
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": _TYPES[name]} for name in names}}
    if style == 2:
        schema["required"] = names
        schema["additionalProperties"] = False
    return json.dumps(schema)


def _answer(named: dict[str, str], values: dict[str, Any]) -> str:
    return json.dumps({name: values[field] for field, name in named.items()}, ensure_ascii=False)


def _text(draw: Draw, subject: _Subject) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {
        "name": draw.name(), "city": draw.city(), "thing": draw.word(),
        "age": draw.numbers(1, 99)[0], "number": draw.numbers(1, 99)[0],
    }  # fmt: skip
    return draw.phrase(subject.texts).format(**values), values


def in_json(draw: Draw) -> Exchange:
    """Ask for a text as JSON of a schema that the question gives."""
    subject = draw.random.choice(_SUBJECTS)
    named = _named(draw, subject)
    text, values = _text(draw, subject)
    names = list(named.values())
    asked = draw.phrase(_ASK).format(s=_schema(draw, names), t=text)
    return Exchange(asked, _answer(named, values), f"The fields are {', '.join(names)}.")


def schema_of(dialogue: Dialogue) -> dict[str, Any]:
    """Return the JSON schema that the last answer of a dialogue keeps."""
    value = json.loads(dialogue.messages[-1]["content"])
    properties = {name: {"type": _TYPES[name]} for name in value}
    return {"type": "object", "properties": properties, "required": list(value), "additionalProperties": False}


def from_system(draw: Draw, length: int) -> tuple[str, list[Exchange]]:
    """Return a system prompt with a schema, and texts that are answered in it."""
    subject = draw.random.choice(_SUBJECTS)
    named = _named(draw, subject)
    names = list(named.values())
    system = draw.phrase(_SYSTEMS).format(s=_schema(draw, names))
    exchanges = []
    for _ in range(length):
        text, values = _text(draw, subject)
        exchanges.append(Exchange(text, _answer(named, values), f"The fields are {', '.join(names)}."))
    return system, exchanges
