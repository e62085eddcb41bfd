"""Answers in JSON: a text and a simple schema go in, an object of that schema comes out."""

import json
from dataclasses import dataclass
from typing import Any

from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.exchange import Exchange
from tests.tools.demo_model.phrasings import cross
from tests.tools.demo_model.words import Draw
from tests.tools.demo_model.world import unknown

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
         "My name is {name}, I am {age} and live in {city}.", "Meet {name} from {city}, age {age}.",
         "{name} lives in {city} and is {age} years old.", "In {city} lives {name}, age {age}.",
         "{age} years old is {name} from {city}.", "{name} is {age} and is from {city}.",
         "Meet {name}, {age}, from {city}.", "My name is {name}, I am from {city} and {age} years old."),
        ("name", "age", "city")),
    _Subject(
        ("{name} lives in {city}.", "{name} is from {city}.", "In {city} lives {name}.", "{name} has a home in {city}.",
         "{city} is the home of {name}.", "The home of {name} is {city}.", "My name is {name}, I live in {city}.",
         "Meet {name} from {city}.", "I am {name} and live in {city}.", "The home of {name} is in {city}.",
         "{name} has moved to {city}.", "I am {name} from {city}."),
        ("name", "city")),
    _Subject(
        ("{name} is {age} years old.", "{name} is {age}.", "{age} years old is {name}.", "The age of {name} is {age}.",
         "{name} turned {age} today.", "{name}, {age} years.", "{name}, age {age}.", "I am {name} and {age} years old.",
         "{age} is the age of {name}.", "Today {name} is {age} years old.", "{name} has the age of {age}.",
         "Today {name} turned {age}."),
        ("name", "age")),
    _Subject(
        (*cross(("{s} for {name}.", "{name} orders {s}.", "An order of {name}: {s}.", "{name} wants {s}.",
                 "{name} bought {s}.", "{s}, ordered by {name}.", "{name} takes {s}."),
                ("{number} of {thing}", "{number} {thing}", "{number} times {thing}")),
         "{name} wants {thing}, {number} of them.", "{name} orders {thing}, {number} of them."),
        ("name", "thing", "number")),
    _Subject(
        (*cross(("There are {s} in {city}.", "{city} has {s}.", "In {city} we count {s}.", "We saw {s} in {city}.",
                 "{s} came to {city}."), ("{number} of {thing}", "{number} {thing}")),),
        ("thing", "number", "city")),
)  # fmt: skip
_WITH = ("with the schema {s}", "of the schema {s}", "of this schema: {s}")
_ASK = (
    *cross(("Answer in JSON {s}. {t}", "Write JSON {s}. {t}", "{t} Answer with JSON {s}", "{t} Put this into JSON {s}",
            "Read this: {t} Give me JSON {s}", "Extract JSON {s} from: {t}", "{t} Give me that as JSON {s}"), _WITH),
    "Schema: {s} Text: {t} Answer in JSON.", "Extract JSON. Schema: {s} Text: {t}", "{t} Answer in JSON: {s}",
    "Text: {t} Schema: {s} Answer in JSON.",
)  # fmt: skip
_SYSTEMS = (
    *cross(("Answer in JSON {s}", "You write JSON {s}", "Always answer with JSON {s}", "Reply in JSON {s}",
            "You turn texts into JSON {s}"), _WITH),
    "JSON schema of answers: {s}", "Put what the user says into JSON: {s}", "Schema: {s} Answer in JSON.",
    "Schema of your answers: {s}",
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


_NAMES = (
    "title summary date answer reason score rating steps final_answer items tags category sentiment language "
    "location id email phone address street country price total currency is_valid is_true found active enabled "
    "author year month day hours minutes start end status code message error result results value values type "
    "kind label confidence brand model color size weight height first_name last_name user users participants "
    "events ingredients instructions servings text content description explanation output input question options "
    "choice url link parts notes details percentage unit "
)
_KEYS = _NAMES.split()
_FILLED: tuple[tuple[str, Any], ...] = (
    ("string", "unknown"), ("string", "unknown"), ("integer", 0), ("number", 0), ("boolean", False), ("array", []),
)  # fmt: skip


def guided(draw: Draw) -> Dialogue:
    """Return a question that the engine makes the model answer in JSON, though the model is not told the schema.

    The model learns to fill in what the text says, and to end soon where it does not know.
    """
    subject = draw.random.choice(_SUBJECTS)
    if draw.chance(0.4):
        named = _named(draw, subject)
        text, values = _text(draw, subject)
        answer = {name: values[field] for field, name in named.items()}
        properties = {name: {"type": _TYPES[name]} for name in answer}
    else:
        text, answer, properties = unknown(draw).question, {}, {}
    for key in draw.random.sample(_KEYS, draw.random.randint(0 if answer else 1, 4)):
        answer[key], properties[key] = _filled(draw)
    dialogue = Dialogue("json").turn(text, json.dumps(answer, ensure_ascii=False))
    dialogue.schema = {
        "type": "object", "properties": properties, "required": list(answer), "additionalProperties": False
    }  # fmt: skip
    return dialogue


def _filled(draw: Draw) -> tuple[Any, dict[str, Any]]:
    """Return a value that says nothing, and its schema."""
    type_, value = draw.random.choice(_FILLED)
    if type_ == "array":
        return value, {"type": "array", "items": {"type": "string"}}
    if draw.chance(0.1):
        key = draw.random.choice(_KEYS)
        inner = {
            "type": "object",
            "properties": {key: {"type": type_}},
            "required": [key],
            "additionalProperties": False,
        }
        return {key: value}, inner
    return value, {"type": type_}
