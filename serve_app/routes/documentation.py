"""GET /openapi.json and /docs: the OpenAPI document, and the same as a page that loads nothing from elsewhere.

The document is derived: paths from the route table, bodies and answers from the contracts of endpoints.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from http import HTTPStatus
from pkgutil import resolve_name
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from deployments.state.identity.keys import KeyChange, NewKey
from serve_app.errors.api import ApiError, BadRequest, NotFound, PermissionDenied, Unauthenticated, WireError
from serve_app.errors.capacity import RateLimited, Unavailable
from serve_app.routes.endpoint import Contract, answers, contract_of, services_of

_REFERENCE = "#/components/schemas/{model}"
_ERRORS = (BadRequest, Unauthenticated, PermissionDenied, NotFound, RateLimited, ApiError, Unavailable)

Json = dict[str, Any]


def create_document(routes: Iterable[BaseRoute], tiers: Sequence[str]) -> Json:
    """Return the OpenAPI document of routes; keys may be of these tiers. Raises LookupError without a contract."""
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


_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
}


@answers(dict[str, Any], needs_key=False)
async def show_document(request: Request) -> Response:
    """Return this document."""
    return Response((await _documents(request))[0], media_type="application/json")


@answers(str, media_type="text/html", needs_key=False)
async def show_page(request: Request) -> Response:
    """Return this document as a page."""
    return Response((await _documents(request))[1], media_type="text/html", headers=_PAGE_HEADERS)


async def _documents(request: Request) -> tuple[bytes, str]:
    """Return the document and the page; the first request creates them."""
    state = request.app.state
    if not hasattr(state, "documents"):  # In a thread: it takes most of a second.
        state.documents = await asyncio.to_thread(
            _make, state.documented, services_of(request).tiers.names, state.stylesheet
        )
    documents: tuple[bytes, str] = state.documents
    return documents


def _make(routes: Iterable[BaseRoute], tiers: Sequence[str], stylesheet: str) -> tuple[bytes, str]:
    document = create_document(routes, tiers)
    return orjson.dumps(document), _page(document, stylesheet)


def _page(document: dict[str, Any], stylesheet: str) -> str:
    schemas = document["components"]["schemas"]
    sections = [
        _section(method, path, operation, schemas)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Reference – Manta</title>'  # noqa: RUF001
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="stylesheet" href="{escape(stylesheet)}"><main class="reference"><h1>Manta</h1><p>Set the base URL '
        "of any OpenAI client to this address followed by <code>/v1</code>. Every path below <code>/v1</code> wants "
        "<code>Authorization: Bearer YOUR_KEY</code>. The same as a document for programs: "
        '<a href="/openapi.json">openapi.json</a>. Usage, keys and a playground: <a href="/console">console</a>.</p>'
        + "".join(sections)
        + "</main>"
    )


def _section(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    query = [(one["name"], one["schema"], False) for one in operation.get("parameters", ()) if one["in"] == "query"]
    bodies = operation.get("requestBody", {}).get("content", {})
    answers = operation["responses"]["200"]["content"]
    return (
        f"<section><h2><b>{method.upper()}</b>{escape(path)}</h2><p>{escape(operation['summary'])}.</p>"
        + _table("Query", query)
        + "".join(_table(f"Body: {kind}", _fields(body["schema"], schemas)) for kind, body in bodies.items())
        + "".join(_table(f"Answer: {kind}", _fields(answer["schema"], schemas)) for kind, answer in answers.items())
        + "</section>"
    )


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    """Return name and schema of every field of an object, and whether it is required; nothing for a union."""
    schema = schemas[_name_of(schema)] if "$ref" in schema else schema
    required = schema.get("required", ())
    return [(field, about, field in required) for field, about in schema.get("properties", {}).items()]


def _table(title: str, fields: list[tuple[str, dict[str, Any], bool]]) -> str:
    if not fields:
        return ""
    rows = "".join(_row(field, about, is_required=is_required) for field, about, is_required in fields)
    head = f"<details><summary>{escape(title)}</summary><table><tr><th>Field<th>Type<th>Default"
    return f"{head}{rows}</table></details>"


def _name_of(reference: dict[str, Any]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]


def _row(field: str, about: dict[str, Any], *, is_required: bool) -> str:
    default = "required" if is_required else orjson.dumps(about.get("default")).decode()
    kind = escape(_kind_of(about))
    return f"<tr><td><code>{escape(field)}</code><td>{kind}<td><code>{escape(default)}</code>"


def _kind_of(about: dict[str, Any]) -> str:
    """Return a parameter's type and bounds in words."""
    for union in ("anyOf", "oneOf"):
        if union in about:
            kinds = [_kind_of(kind) for kind in about[union]]
            return " or ".join(dict.fromkeys(kind for kind in kinds if kind != "null"))
    if "$ref" in about:
        return _name_of(about).rpartition("__")[2]
    if "enum" in about or "const" in about:
        return " | ".join(orjson.dumps(value).decode() for value in about.get("enum", [about.get("const")]))
    if about.get("type") == "array":
        return f"array of {_kind_of(about.get('items', {}))}"
    low, high = about.get("minimum"), about.get("maximum")
    bounds = (
        "" if low is None and high is None else f" ({'' if low is None else low} to {'' if high is None else high})"
    )
    return str(about.get("type", "any")) + bounds
