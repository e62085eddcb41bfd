"""The OpenAPI document, derived from the route table and the contracts of endpoints."""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pkgutil import resolve_name
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from starlette.routing import BaseRoute, Route

from deployments.descriptions import meanings_of
from deployments.state.identity.keys import KeyChange, NewKey
from serve_app.documentation.resources import resource_of, resources_of
from serve_app.documentation.samples import example_of, samples_of
from serve_app.errors.api import ApiError, BadRequest, NotFound, PermissionDenied, Unauthenticated, WireError
from serve_app.errors.capacity import RateLimited, Unavailable
from serve_app.routes.endpoint import Contract, contract_of
from serve_app.schemas.chat_dialect import ChatOptions
from serve_app.schemas.engine_options import GenerationOptions, PromptOptions, SamplingOptions

Json = dict[str, Any]
REFERENCE = "#/components/schemas/{model}"
_ENGINE_OPTIONS = (ChatOptions, GenerationOptions, SamplingOptions, PromptOptions)
_REFERENCE = re.compile(rb'"#/components/schemas/([^"]+)"')
_ERRORS = (BadRequest, Unauthenticated, PermissionDenied, NotFound, RateLimited, ApiError, Unavailable)
_ABOUT = (
    "Language models behind OpenAI's interface. Set the base URL of an OpenAI client to this address followed by "
    "`/v1`, and its API key to a key of this service."
)


def create_document(routes: Iterable[BaseRoute], tiers: Sequence[str]) -> Json:
    """Return the OpenAPI document of routes; keys may be of these tiers. Raises LookupError without a contract."""
    served = [(route, contract_of(route.endpoint)) for route in routes if isinstance(route, Route)]
    types = dict.fromkeys(kind for _, contract in served for kind in _types_of(contract))
    schema_of, definitions = create_schemas((*types, WireError))
    for body in (NewKey, KeyChange):
        definitions[body.__name__]["properties"]["tier"] |= {"enum": list(tiers)}
    paths: Json = {}
    for route, contract in served:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path_format, {})[method.lower()] = _operation(method, route, contract, schema_of)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Manta", "version": "1", "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [{"name": one.name, "description": one.description} for one in resources_of(paths)],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "An API key."}},
            "schemas": definitions,
            "responses": {
                error.__name__: {
                    "description": (error.__doc__ or "").strip().partition("\n")[0].removesuffix("."),
                    "content": {"application/json": {"schema": schema_of[WireError]}},
                }
                for error in _ERRORS
            },
        },
    }
    return rename(document, short_names(definitions, _names_of_lists(served, schema_of)))


def _names_of_lists(served: Iterable[tuple[Route, Contract]], schema_of: dict[Any, Json]) -> dict[str, str]:
    """Return names for generic answers, such as BatchPage for a page of batches."""
    names = {}
    for _, contract in served:
        if isinstance(contract.of, str):
            reference = schema_of[_answer_of(contract)]["$ref"].rpartition("/")[2]
            names[reference] = contract.of.rpartition(".")[2] + contract.answer.__name__
    return names


def _types_of(contract: Contract) -> Iterator[Any]:
    yield _answer_of(contract)
    for kind in (contract.events, contract.body, contract.form):
        if kind is not None:
            yield _resolved(kind)


def _answer_of(contract: Contract) -> Any:
    answer = _resolved(contract.answer)
    return answer if contract.of is None else answer[_resolved(contract.of)]


def _resolved(kind: Any) -> Any:
    return resolve_name(kind) if isinstance(kind, str) else kind


def _operation(method: str, route: Route, contract: Contract, schema_of: dict[Any, Json]) -> Json:
    content = {contract.media_type: {"schema": schema_of[_answer_of(contract)]}}
    if contract.events is not None:
        content["text/event-stream"] = {"schema": schema_of[_resolved(contract.events)]}
    content |= {media_type: {"schema": {"type": "string"}} for media_type in contract.exports}
    summary, description = _described(route.endpoint.__doc__)
    operation: Json = {
        "tags": [resource_of(route.path_format).name],
        "summary": summary,
        "operationId": _operation_id(method, route),
        **({"description": description} if description else {}),
        "responses": {
            str(status): {"description": HTTPStatus(status).phrase, "content": content} for status in contract.statuses
        },
    }
    if contract.needs_key:
        references = {error: {"$ref": f"#/components/responses/{error.__name__}"} for error in _ERRORS}
        operation["responses"] |= {str(error.status): reference for error, reference in references.items()}
        operation["responses"]["default"] = references[ApiError]
    else:
        operation["security"] = []
    if parameters := [*_path_parameters(route), *_query_parameters(contract.query)]:
        operation["parameters"] = parameters
    if body := _body(contract, schema_of):
        operation["requestBody"] = body
    operation["x-codeSamples"] = samples_of(method, route.path_format, contract)
    return operation


def _body(contract: Contract, schema_of: dict[Any, Json]) -> Json:
    bodies = {"application/json": contract.body, "multipart/form-data": contract.form}
    taken = {media_type: body for media_type, body in bodies.items() if body is not None}
    if not taken:
        return {}
    is_required = any(field.is_required() for body in taken.values() for field in body.model_fields.values())
    content = {media_type: {"schema": schema_of[body]} for media_type, body in taken.items()}
    if contract.body is not None:
        content["application/json"]["example"] = example_of(contract.body)
    return {"required": is_required, "content": content}


def _path_parameters(route: Route) -> Iterator[Json]:
    for name in route.param_convertors:
        noun = name.removesuffix("_id").replace("_", " ")
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": f"The id of the {noun}.",
            "schema": {"type": "string"},
        }


def _query_parameters(query: type[BaseModel] | None) -> Iterator[Json]:
    if query is None:
        return
    schema = query.model_json_schema(schema_generator=DescribedSchema)
    required = schema.get("required", ())
    for name, about in schema["properties"].items():
        # A parameter that may be left out is None inside; on the wire there is no null.
        given = next((branch for branch in about.get("anyOf", ()) if branch != {"type": "null"}), about)
        default = {} if about.get("default") is None else {"default": about["default"]}
        inner = {key: value for key, value in given.items() if key != "description"} | default
        described = {"description": about["description"]} if "description" in about else {}
        yield {"name": name, "in": "query", "required": name in required, **described, "schema": inner}


def _operation_id(method: str, route: Route) -> str:
    words = route.path_format.replace("{", "").replace("}", "").strip("/").replace("/", "_").replace(".", "_")
    return f"{method.lower()}_{words}"


def _described(docstring: str | None) -> tuple[str, str]:
    """Return the summary, without its full stop, and the rest of an endpoint's docstring up to its `Raises:`."""
    summary, *paragraphs = inspect.cleandoc(docstring or "").partition("\n\nRaises:")[0].split("\n\n")
    return summary.removesuffix("."), "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def short_names(names: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return a name without modules for each name; those in `given` keep what is given."""
    names = list(names)
    chosen = {name: given.get(name, name) for name in names if name in given or "__" not in name}
    taken = set(chosen.values())
    for name in names:
        if name not in chosen:
            chosen[name] = next(one for one in _candidates(name) if one not in taken)
            taken.add(chosen[name])
    return chosen


def _candidates(name: str) -> Iterable[str]:
    """Yield names for a class that is named with its modules: the more modules, the later."""
    *modules, own = name.split("__")
    if modules[0] != "openai":  # A body of this service, beside the answer of the `openai` package with its name.
        yield f"{own}Param"
    while modules:
        noun = "".join(word.capitalize() for word in modules.pop().split("_"))
        own = noun if noun.endswith(own) else own if own.startswith(noun) else noun + own
        yield own


def rename(document: Json, names: Mapping[str, str]) -> Json:
    """Return a document whose schemas have other names."""
    renamed = _REFERENCE.sub(
        lambda found: f'"#/components/schemas/{names.get(found[1].decode(), found[1].decode())}"'.encode(),
        orjson.dumps(document),
    )
    result: Json = orjson.loads(renamed)
    schemas = result["components"]["schemas"]
    result["components"]["schemas"] = {names.get(name, name): schemas[name] for name in sorted(schemas)}
    return result


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
