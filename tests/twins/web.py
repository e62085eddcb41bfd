"""A small web on loopback: pages, and the services that search them, each as its documentation has it.

The SearXNG answers like one whose only engine knows the pages here. Written from
https://docs.searxng.org/dev/search_api.html, https://api-dashboard.search.brave.com/documentation and
https://docs.tavily.com/documentation/api-reference/endpoint/search; shares no code with what asks them.
"""

import asyncio
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

BRAVE_KEY, TAVILY_KEY = "BSA-secret-of-the-test", "tvly-secret-of-the-test"


@dataclass(frozen=True)
class Site:
    """A page: where, what it is called, what the search says of it, and what it holds."""

    host: str
    path: str
    title: str
    about: str
    html: str = ""
    content_type: str = "text/html; charset=utf-8"
    status: int = 200


SITES = (
    Site(
        "weather.example",
        "/lisbon",
        "Weather in Lisbon",
        "Sunny, 24 degrees in Lisbon today.",
        "<html><head><title>Weather in Lisbon</title><script>steal()</script></head><body><nav><a href='/'>Home</a>"
        "</nav><main><h1>Lisbon</h1><p>It is sunny, 24 degrees. Read the <a href='/lisbon/tomorrow?x=1#top'>outlook</a>"
        " too.</p><p>" + "The sea has 19 degrees and small waves. " * 20 + "</p></main></body></html>",
    ),
    Site(
        "weather.example", "/lisbon/tomorrow", "Outlook", "Rain in Lisbon tomorrow.", "<title>Outlook</title><p>Rain."
    ),
    Site("news.example", "/storm", "Storm near Lisbon", "A storm is near Lisbon.", "<title>Storm</title><p>A storm."),
    Site("sub.news.example", "/sport", "Sport in Lisbon", "A match in Lisbon.", "<title>Sport</title><p>Two to one."),
    Site("files.example", "/report.pdf", "Report on Lisbon", "A report.", "%PDF-1.7", "application/pdf"),
    Site("files.example", "/data.json", "Data of Lisbon", "Numbers.", '{"degrees": 24}', "application/json"),
    Site("files.example", "/gone", "Gone from Lisbon", "It was here.", "<p>Gone.", status=404),
    Site("mills.example", "/old", "Windmills", "Windmills came from Tallinn.", "<title>Windmills</title><p>Old."),
)


@dataclass
class Web:
    """The pages and the services, how they behave, and what they were asked."""

    formats: tuple[str, ...] = ("html", "json")
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    visited: list[str] = field(default_factory=list)
    answer: Response | None = None
    hold: asyncio.Event | None = None
    port: int = 0
    opened: list[Any] = field(default_factory=list)

    def url(self, site: Site) -> str:
        return f"http://{site.host}:{self.port}{site.path}"

    def app(self) -> Starlette:
        routes = [
            Route("/search", self._searxng, methods=["GET"]),
            Route("/search", self._tavily, methods=["POST"]),
            Route("/res/v1/web/search", self._brave),
            Route("/{path:path}", self._page),
        ]
        return Starlette(routes=routes)

    def _found(self, query: str) -> list[Site]:
        words = {word for word in query.lower().split() if not word.startswith(("site:", "(site:", "or"))}
        return [site for site in SITES if words & set(f"{site.title} {site.about}".lower().split())]

    async def _note(self, request: Request, asked: dict[str, Any]) -> Response | None:
        self.asked.append(asked)
        self.headers.append(dict(request.headers))
        if self.hold is not None:
            await self.hold.wait()
        return self.answer

    async def _searxng(self, request: Request) -> Response:
        asked = dict(request.query_params)
        told = await self._note(request, asked)
        if told is not None:
            return told
        if asked.get("format", "html") not in self.formats:
            return Response("Forbidden", 403)
        if not asked.get("q"):
            return JSONResponse({"error": "No query"}, 400)
        sites = self._found(asked["q"])
        results = [
            {
                "url": self.url(site),
                "title": site.title,
                "content": site.about,
                "publishedDate": None,
                "thumbnail": "",
                "engine": "here",
                "parsed_url": [*urlsplit(self.url(site)), ""],
                "template": "default.html",
                "engines": ["here"],
                "positions": [number],
                "score": 1.0 / number,
                "category": "general",
            }
            for number, site in enumerate(sites, 1)
        ]
        empty: dict[str, Any] = {name: [] for name in ("answers", "corrections", "infoboxes", "suggestions")}
        head = {"query": asked["q"], "number_of_results": 0, "results": results}
        return JSONResponse({**head, **empty, "unresponsive_engines": []})

    async def _brave(self, request: Request) -> Response:
        asked = dict(request.query_params)
        told = await self._note(request, asked)
        if told is not None:
            return told
        if request.headers.get("x-subscription-token") != BRAVE_KEY:
            error = {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422, "detail": "The provided token is invalid."}
            return JSONResponse({"type": "ErrorResponse", "error": error}, 422)
        results = [
            {
                "title": site.title,
                "url": self.url(site),
                "is_source_local": False,
                "is_source_both": False,
                "description": site.about,
                "language": "en",
                "family_friendly": True,
                "type": "search_result",
                "subtype": "generic",
            }
            for site in self._found(asked["q"])
        ]
        web = {"type": "search", "results": results[: int(asked.get("count", 20))], "family_friendly": True}
        return JSONResponse({"query": {"original": asked["q"]}, "type": "search", "web": web})

    async def _tavily(self, request: Request) -> Response:
        asked = orjson.loads(await request.body())
        told = await self._note(request, asked)
        if told is not None:
            return told
        if request.headers.get("authorization") != f"Bearer {TAVILY_KEY}":
            return JSONResponse({"detail": {"error": "Unauthorized: missing or invalid API key."}}, 401)
        domains = asked.get("include_domains") or []
        sites = [site for site in self._found(asked["query"]) if not domains or site.host in domains]
        results = [
            {"title": site.title, "url": self.url(site), "content": site.about, "score": 0.9, "raw_content": None}
            for site in sites
        ]
        head = {"query": asked["query"], "answer": None, "images": []}
        return JSONResponse({**head, "results": results[: asked.get("max_results", 5)], "response_time": "0.1"})

    async def _page(self, request: Request) -> Response:
        host = (request.headers["host"]).partition(":")[0]
        self.visited.append(host + request.url.path)
        if self.hold is not None:
            await self.hold.wait()
        if request.url.path == "/leads":
            return RedirectResponse(request.query_params["to"])
        site = next((site for site in SITES if (site.host, site.path) == (host, request.url.path)), None)
        if site is None:
            return Response("Not here.", 404)
        return Response(site.html, site.status, {"content-type": site.content_type})


async def resolve(host: str, port: int) -> list[str]:
    """Resolve the hosts of this small web, to loopback, addresses as they are, and no others."""
    return ["127.0.0.1"] if host.endswith(".example") else [str(ip_address(host))]
