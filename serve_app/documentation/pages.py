"""GET /openapi.json, and the pages below /docs: the API reference by resource, the guides, and their search.

All of it is public, as it says nothing about an account. Pages load nothing from elsewhere.
"""

import asyncio
import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from serve_app.console.rendering import THEMES
from serve_app.console.visit import HEADERS, THEME_COOKIE, render_page
from serve_app.documentation.document import create_document
from serve_app.documentation.guides import GUIDE, Chapter, Guide, code_block, inline, picture, read_chapters
from serve_app.documentation.operations import Section, create_sections
from serve_app.errors.api import UnknownUrl
from serve_app.routes.endpoint import answers, services_of

API = "/docs/api"
_SEARCH = "/docs/search.json"


@dataclass(frozen=True, slots=True)
class Documentation:
    """Everything that the pages show. The document and the search index are ready to send.

    `pages` has the pages that were asked for, compressed, by their path and the cookie of the theme: anybody may ask,
    and rendering a large page takes 50 ms.
    """

    document: bytes
    sections: tuple[Section, ...]
    chapters: tuple[Chapter, ...]
    search: bytes
    pages: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def guide(self, name: str) -> Guide | None:
        """Return a guide, None if there is none of that name."""
        return next((one for chapter in self.chapters for one in chapter.guides if one.name == name), None)


def create_documentation(routes: Iterable[BaseRoute], tiers: Sequence[str]) -> Documentation:
    """Return the documentation of routes; keys may be of these tiers. Takes a second or two."""
    document = create_document(routes, tiers)
    sections, chapters = tuple(create_sections(document)), read_chapters()
    return Documentation(orjson.dumps(document), sections, chapters, orjson.dumps(_entries(sections, chapters)))


def _entries(sections: Iterable[Section], chapters: Iterable[Chapter]) -> list[list[str]]:
    """Return what can be found: a title, what it belongs to, and the address."""
    operations = [
        [one.summary, f"{one.method} {one.paths[0]}", f"{API}/{section.resource.slug}#{one.anchor}"]
        for section in sections
        for one in section.operations
    ]
    headings = [
        [heading.text, guide.title if heading.level > 1 else chapter.title, f"{guide.address}#{heading.anchor}"]
        for chapter in chapters
        for guide in chapter.guides
        for heading in guide.headings
    ]
    return operations + headings


@answers(dict[str, Any], needs_key=False)
async def show_document(request: Request) -> Response:
    """The OpenAPI document.

    Describes every route of this service in OpenAPI 3.1.
    """
    return _compressed(request, (await _documentation(request)).document, {})


@answers(str, media_type="text/html", needs_key=False)
async def show_start(request: Request) -> Response:
    """The API reference and the guides as web pages."""
    # It shows the address by which this client came.
    return await _page(request, "docs_start.html", is_kept=False, base_url=f"{str(request.base_url).rstrip('/')}/v1")


async def show_resource(request: Request) -> Response:
    """Return the page of a resource: its routes, with fields, examples and a form to try them."""
    slug = request.path_params["resource"]
    sections = (await _documentation(request)).sections
    section = next((one for one in sections if one.resource.slug == slug), None)
    if section is None:
        raise UnknownUrl(request.method, request.url.path)
    return await _page(request, "docs_reference.html", section=section)


async def list_guides(request: Request) -> Response:
    """Return the page that lists the guides."""
    return await _page(request, "docs_guides.html")


async def show_guide(request: Request) -> Response:
    """Return a guide, or a picture of one."""
    name = request.path_params["name"]
    if (path := picture(name)) is not None:
        return FileResponse(path)
    guide = (await _documentation(request)).guide(name)
    if guide is None:
        raise UnknownUrl(request.method, request.url.path)
    return await _page(request, "docs_guide.html", guide=guide, content=Markup(guide.html))  # noqa: S704 - our own page


async def show_search_index(request: Request) -> Response:
    """Return what the search of the pages finds."""
    return _compressed(request, (await _documentation(request)).search, {"cache-control": "public, max-age=300"})


ROUTES = [
    Route("/docs/api/{resource}", show_resource),
    Route(GUIDE, list_guides),
    Route(GUIDE + "/{name:path}", show_guide),
    Route(_SEARCH, show_search_index),
]
"""The pages that are no part of the API."""


async def _documentation(request: Request) -> Documentation:
    """Return the documentation; the first request creates it, in a thread."""
    state = request.app.state
    if not hasattr(state, "documentation"):
        state.documentation = await asyncio.to_thread(
            create_documentation, state.documented, services_of(request).tiers.names
        )
    documentation: Documentation = state.documentation
    return documentation


async def _page(request: Request, template: str, *, is_kept: bool = True, **values: Any) -> Response:
    documentation = await _documentation(request)
    theme = request.cookies.get(THEME_COOKIE, "")
    place = (request.url.path, theme if theme in THEMES else "")
    content = documentation.pages.get(place) if is_kept else None
    if content is None:
        content = gzip.compress(_render(request, documentation, template, values), 5, mtime=0)
    if is_kept:
        documentation.pages[place] = content
    headers = {**HEADERS, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(content, headers={**headers, "content-encoding": "gzip"}, media_type="text/html")
    return Response(gzip.decompress(content), headers=headers, media_type="text/html")


def _render(request: Request, documentation: Documentation, template: str, values: dict[str, Any]) -> bytes:
    page = render_page(
        request,
        template,
        **values,
        sections=documentation.sections,
        chapters=documentation.chapters,
        has_console=services_of(request).console is not None,
        inline=inline,
        code_block=code_block,
    )
    return bytes(page.body)


def _compressed(request: Request, content: bytes, headers: dict[str, str]) -> Response:
    """Return JSON, compressed where the client accepts that."""
    headers = {**headers, "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = gzip.compress(content, 5, mtime=0), "gzip"
    return Response(content, headers=headers, media_type="application/json")
