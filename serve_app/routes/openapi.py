"""The service's OpenAPI document, derived: paths from the route table, the rest from each endpoint's contract.

Bodies are those that requests are checked with, answers are the `openai` package's types, so both are what clients send
and read.
"""

from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from pkgutil import resolve_name
from typing import Any

from pydantic import BaseModel, TypeAdapter
from starlette.routing import BaseRoute, Route

from deployments.state.identity.keys import KeyChange, NewKey
from serve_app.errors.api import ApiError, BadRequest, NotFound, PermissionDenied, Unauthenticated, WireError
from serve_app.errors.capacity import RateLimited, Unavailable
from serve_app.routes.contract import Contract, contract_of

_REFERENCE = "#/components/schemas/{model}"
_ERRORS = (BadRequest, Unauthenticated, PermissionDenied, NotFound, RateLimited, ApiError, Unavailable)

Json = dict[str, Any]


def create_document(routes: Iterable[BaseRoute], tiers: Sequence[str]) -> Json:
    """Return the document: every path that is served over HTTP, nothing that is not; keys may be of these tiers.

    Raises:
        LookupError: an endpoint has no contract.
    """
    served = [(route, contract_of(route.endpoint)) for route in routes if isinstance(route, Route)]
    types = dict.fromkeys(kind for _, contract in served for kind in _types_of(contract))
    schemas, definitions = TypeAdapter.json_schemas(
        [(kind, "validation", TypeAdapter(kind)) for kind in (*types, WireError)], ref_template=_REFERENCE
    )
    for body in (NewKey, KeyChange):
        definitions["$defs"][body.__name__]["properties"]["tier"] |= {"enum": list(tiers)}
    schema_of = {kind: schema for (kind, _), schema in schemas.items()}
    paths: Json = {}
    for route, contract in served:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(route.path_format, {})[method.lower()] = _operation(route, contract, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Manta",
            "version": "1",
            "description": "Language models behind an interface that OpenAI's client libraries speak.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": definitions["$defs"],
            "responses": {
                error.__name__: {
                    "description": _first_line(error.__doc__),
                    "content": {"application/json": {"schema": schema_of[WireError]}},
                }
                for error in _ERRORS
            },
        },
    }


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


def _operation(route: Route, contract: Contract, schema_of: dict[Any, Json]) -> Json:
    content = {contract.media_type: {"schema": schema_of[_answer_of(contract)]}}
    if contract.events is not None:
        content["text/event-stream"] = {"schema": schema_of[_resolved(contract.events)]}
    content |= {media_type: {"schema": {"type": "string"}} for media_type in contract.exports}
    operation: Json = {
        "summary": _first_line(route.endpoint.__doc__),
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
    bodies = {"application/json": contract.body, "multipart/form-data": contract.form}
    taken = {media_type: {"schema": schema_of[body]} for media_type, body in bodies.items() if body is not None}
    if taken:
        is_required = any(
            field.is_required() for body in bodies.values() if body for field in body.model_fields.values()
        )
        operation["requestBody"] = {"required": is_required, "content": taken}
    return operation


def _path_parameters(route: Route) -> Iterator[Json]:
    for name in route.param_convertors:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(query: type[BaseModel] | None) -> Iterator[Json]:
    if query is None:
        return
    for name, schema in query.model_json_schema()["properties"].items():
        # A parameter that may be left out is None inside; on the wire there is no null.
        given = next((branch for branch in schema.get("anyOf", ()) if branch != {"type": "null"}), schema)
        default = {} if schema.get("default") is None else {"default": schema["default"]}
        yield {"name": name, "in": "query", "schema": {**given, **default}}


def _first_line(docstring: str | None) -> str:
    return (docstring or "").strip().partition("\n")[0].removesuffix(".")
