"""The schemas of the OpenAPI document: described from docstrings, in a helpful order, under short names."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from deployments.descriptions import meanings_of
from serve_app.schemas.chat_dialect import ChatOptions
from serve_app.schemas.engine_options import GenerationOptions, PromptOptions, SamplingOptions

Json = dict[str, Any]

REFERENCE = "#/components/schemas/{model}"
_ENGINE_OPTIONS = (ChatOptions, GenerationOptions, SamplingOptions, PromptOptions)


class DescribedSchema(GenerateJsonSchema):
    """Schemas without the titles that repeat names, and with the descriptions of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return that no field has a title."""
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a model, described."""
        model: type[BaseModel] = schema["cls"]
        return describe(super().model_schema(schema), model)


def describe(schema: Json, model: type[BaseModel]) -> Json:
    """Return a model's schema with descriptions from its docstring, in the order in which a reader wants its fields.

    Fields that are refused are left out. Required ones come first, then OpenAI's, then vLLM's.
    """
    fields = {field.alias or name: name for name, field in model.model_fields.items()}
    meanings, options = meanings_of(model), _engine_options(model)
    required = set(schema.get("required", ()))
    kept: Json = {}
    for wire_name, about in schema.get("properties", {}).items():
        if about.get("refused"):
            continue
        name = fields.get(wire_name, wire_name)
        meaning = meanings.get(name) or about.get("description") or _description_within(about)
        kept[wire_name] = {**about, **({"description": meaning} if meaning else {})}
        if name in options:
            kept[wire_name]["x-vllm"] = True
    order = sorted(kept, key=lambda name: (name not in required, kept[name].get("x-vllm", False)))
    described = {key: value for key, value in schema.items() if key != "title"}
    if "description" in described:
        described["description"] = described["description"].split("\n\nArgs:")[0].replace("\n", " ")
    examples = {"examples": [model.example]} if hasattr(model, "example") else {}
    return {**described, **examples, "properties": {name: kept[name] for name in order}}


def _engine_options(model: type[BaseModel]) -> set[str]:
    """Return the names of a model's fields that only vLLM has."""
    return {name for kind in _ENGINE_OPTIONS if issubclass(model, kind) for name in kind.model_fields}


def _description_within(about: Json) -> str:
    """Return the description of the only type that a field has besides null."""
    given = [branch for branch in about.get("anyOf", ()) if branch != {"type": "null"}]
    return str(given[0].get("description", "")) if len(given) == 1 else ""


def create_schemas(kinds: Iterable[Any]) -> tuple[dict[Any, Json], Json]:
    """Return the schema of each type, and the definitions that the schemas refer to by name."""
    schemas, definitions = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter(kind)) for kind in kinds],
        ref_template=REFERENCE,
        schema_generator=DescribedSchema,
    )
    return {kind: schema for (kind, _), schema in schemas.items()}, definitions.get("$defs", {})
