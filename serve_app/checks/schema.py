"""The JSON schema of a whole Serve file, with which editors complete names and show what they mean."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from deployments.config import Section
from deployments.descriptions import meanings_of, summary_of
from serve_app.checks.document import Pattern
from serve_app.checks.shapes import SHAPES
from serve_app.validation.fields import models_in

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MODE: JsonSchemaMode = "validation"
_TITLE = "A Serve file of Manta"


def file_schema() -> dict[str, Any]:
    """Return the schema of a Serve file: Serve's part, Manta's `args`, and what Manta passes on to Ray and vLLM."""
    sections = list(dict.fromkeys(one for shape in SHAPES for one in _with_inner(shape.kind(), [])))
    refs, document = models_json_schema([(one, _MODE) for one in sections])
    definitions = document["$defs"]

    def properties_of(section: type[BaseModel]) -> dict[str, Any]:
        name = refs[section, _MODE]["$ref"].rpartition("/")[2]
        properties: dict[str, Any] = definitions[name].get("properties", {})
        return properties

    for section in sections:
        if properties := properties_of(section):
            definitions[refs[section, _MODE]["$ref"].rpartition("/")[2]]["additionalProperties"] = False
        if issubclass(section, Section):
            _describe(section, properties, definitions[refs[section, _MODE]["$ref"].rpartition("/")[2]])
    for shape in SHAPES[1:]:
        for owner in _owners(shape.pattern):
            place = properties_of(owner)[str(shape.pattern[-1])]
            about = {key: place[key] for key in ("description",) if key in place}
            properties_of(owner)[str(shape.pattern[-1])] = {**about, **refs[shape.kind(), _MODE]}
    return {"$schema": _DIALECT, "title": _TITLE, **refs[SHAPES[0].kind(), _MODE], "$defs": definitions}


def _with_inner(section: type[BaseModel], above: list[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Yield a section and all those inside it."""
    if section in above:
        return
    yield section
    for field in section.model_fields.values():
        for inner in models_in(field.annotation):
            yield from _with_inner(inner, [*above, section])


def _owners(pattern: Pattern) -> list[type[BaseModel]]:
    """Return the sections that have the last name of a pattern as a setting."""
    owners = [SHAPES[0].kind()]
    for number, part in enumerate(pattern[:-1], 1):
        shape = next((shape for shape in SHAPES if shape.pattern == pattern[:number]), None)
        if shape is not None:
            owners = [shape.kind()]
        elif part is not None:
            fields = [one.model_fields[str(part)] for one in owners if str(part) in one.model_fields]
            owners = [inner for field in fields for inner in models_in(field.annotation)]
    return owners


def _describe(section: type[BaseModel], properties: dict[str, Any], definition: dict[str, Any]) -> None:
    definition["description"] = summary_of(section)
    meanings = meanings_of(section)
    for name, field in section.model_fields.items():
        inner = next(models_in(field.annotation), None)
        meaning = meanings.get(name) or (summary_of(inner) if inner is not None else None)
        if meaning is not None and name in properties:
            properties[name]["description"] = meaning
