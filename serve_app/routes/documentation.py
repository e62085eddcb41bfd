"""GET /openapi.json and /docs: the interface, for programs and for people. The page loads nothing from anywhere."""

from functools import cache
from html import escape
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from serve_app.routes.access import services_of
from serve_app.routes.openapi import create_document

_PAGE_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1d2a30 }
h2 { margin-top: 2.5rem; font: 600 1.05rem ui-monospace, monospace } h2 b { color: #0a7a6c; margin-right: .6rem }
table { border-collapse: collapse; width: 100%; font-size: .9rem } td, th { padding: .3rem .8rem .3rem 0 }
td, th { text-align: left; border-bottom: 1px solid #dde5e8; vertical-align: top }
code { font: .85rem ui-monospace, monospace } summary { cursor: pointer; color: #0a7a6c }
"""


async def show_document(request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(_document_bytes(services_of(request).tiers.names), media_type="application/json")


async def show_page(request: Request) -> Response:
    """Return the OpenAPI document as a page."""
    return Response(_page(services_of(request).tiers.names), media_type="text/html", headers=_PAGE_HEADERS)


@cache
def _document_bytes(tiers: tuple[str, ...]) -> bytes:
    return orjson.dumps(create_document(tiers))


@cache
def _page(tiers: tuple[str, ...]) -> str:
    document = create_document(tiers)
    schemas = document["components"]["schemas"]
    sections = [
        _section(method, path, operation, schemas)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Manta</title><style>{_STYLE}</style>"
        "<h1>Manta</h1><p>Set the base URL of any OpenAI client to this address followed by <code>/v1</code>. Every "
        "path below <code>/v1</code> wants <code>Authorization: Bearer YOUR_KEY</code>. The same as a document for "
        'programs: <a href="/openapi.json">openapi.json</a>.</p>' + "".join(sections)
    )


def _section(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    head = f"<h2><b>{method.upper()}</b>{escape(path)}</h2><p>{escape(operation['summary'])}.</p>"
    if "requestBody" not in operation:
        return head
    (content,) = operation["requestBody"]["content"].values()
    name = content["schema"]["$ref"].rpartition("/")[2]
    schema = schemas[name]
    rows = [
        _row(field, about, is_required=field in schema.get("required", ()))
        for field, about in schema["properties"].items()
    ]
    table = "<table><tr><th>Parameter<th>Type<th>Default" + "".join(rows) + "</table>"
    return f"{head}<details><summary>Parameters</summary>{table}</details>"


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
        return str(about["$ref"]).rpartition("/")[2]
    if "enum" in about or "const" in about:
        return " | ".join(orjson.dumps(value).decode() for value in about.get("enum", [about.get("const")]))
    if about.get("type") == "array":
        return f"array of {_kind_of(about.get('items', {}))}"
    low, high = about.get("minimum"), about.get("maximum")
    bounds = (
        "" if low is None and high is None else f" ({'' if low is None else low} to {'' if high is None else high})"
    )
    return str(about.get("type", "any")) + bounds
