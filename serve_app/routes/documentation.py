"""GET /openapi.json and /docs: the interface, for programs and for people. The page loads nothing from elsewhere."""

import asyncio
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from serve_app.routes.access import services_of
from serve_app.routes.contract import answers
from serve_app.routes.openapi import create_document

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
    """Return the document and the page, made when the first of them is asked for."""
    state = request.app.state
    if not hasattr(state, "documents"):  # Made in a thread: it takes most of a second.
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
    """Return the name, the schema and whether it is required of every field of an object; nothing for a union."""
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
    """Return a parameter's type in words, its bounds with it."""
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
