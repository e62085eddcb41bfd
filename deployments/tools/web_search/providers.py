"""The services that search the web, behind one protocol: SearXNG, Brave and Tavily.

Each search is one request over the guarded client, as the service documents it. Callers must not trust the results.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import orjson

from deployments.config import follow
from deployments.tools.config import BraveConfig, SearXNGConfig, TavilyConfig, ToolsConfig
from deployments.tools.outbound.errors import OutboundError
from deployments.tools.outbound.fetching import FetchBounds, Fetcher, Page

_API_KEY = "tools.web_search.provider.api_key"
_SEARCH_BOUNDS = FetchBounds(max_s=15.0)
_MAX_TITLE_CHARS = 300
_MAX_URL_CHARS = 2048
# https://api-dashboard.search.brave.com/documentation: what `country` may be.
_BRAVE_COUNTRIES = (
    "AR AU AT BE BR CA CL DK FI FR DE GR HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES SE CH TW TR GB US"
)
_BRAVE_MAX_CHARS, _BRAVE_MAX_WORDS, _BRAVE_MAX_RESULTS = 400, 50, 20
_TAVILY_MAX_RESULTS = 20


class SearchFailed(Exception):
    """A search failed; `message` is for the model, and names no secret."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Location:
    """Roughly where a user is; unknown parts are None."""

    country: str | None = None
    region: str | None = None
    city: str | None = None
    timezone: str | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """A query, limited to `domains` and their subdomains if any are given."""

    query: str
    max_results: int
    domains: tuple[str, ...] = ()
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A result: the page's address, its title, and the service's description."""

    url: str
    title: str
    text: str


class SearchProvider(ABC):
    """A service that searches the web, over the guarded client."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    @abstractmethod
    async def search(self, search: Search) -> list[Result]:
        """Return the results, best first; raises SearchFailed unless the service answers as documented."""

    async def aclose(self) -> None:
        """Close every connection."""
        await self._fetcher.aclose()

    async def _ask(self, method: str, url: str, **request: Any) -> Any:
        try:
            page = await self._fetcher.ask(method, url, **request)
        except OutboundError as error:
            raise SearchFailed(f"The search service could not be asked: {error.message}") from error
        return _parse(page)


class SearXNG(SearchProvider):
    """The operator's SearXNG (https://docs.searxng.org/dev/search_api.html), with its JSON format switched on."""

    def __init__(self, fetcher: Fetcher, url: str, engines: tuple[str, ...] = (), language: str | None = None) -> None:
        super().__init__(fetcher)
        self._url = url.rstrip("/") + "/search"
        self._fixed = {"format": "json"}
        if engines:
            self._fixed["engines"] = ",".join(engines)
        if language is not None:
            self._fixed["language"] = language

    async def search(self, search: Search) -> list[Result]:
        """Return the results; SearXNG itself decides how many."""
        params = {"q": _with_sites(search), **self._fixed}
        answer = await self._ask("GET", self._url, headers={"accept": "application/json"}, params=params)
        return _results(_member(answer, "results"), search, "content")


class Brave(SearchProvider):
    """The Brave Search API (https://api-dashboard.search.brave.com/documentation)."""

    def __init__(self, fetcher: Fetcher, url: str, api_key: str) -> None:
        super().__init__(fetcher)
        self._url = url.rstrip("/") + "/res/v1/web/search"
        self._api_key = api_key

    async def search(self, search: Search) -> list[Result]:
        """Return the results; a query that is too long for Brave is cut off."""
        words = _with_sites(search).split()[:_BRAVE_MAX_WORDS]
        params = {
            "q": " ".join(words)[:_BRAVE_MAX_CHARS],
            "count": str(min(search.max_results, _BRAVE_MAX_RESULTS)),
            "result_filter": "web",
            "text_decorations": "false",
        }
        headers = {"accept": "application/json", "x-subscription-token": self._api_key}
        where = search.location or Location()
        if where.country is not None and where.country.upper() in _BRAVE_COUNTRIES.split():
            params["country"] = where.country.upper()
        for name, value in (
            ("x-loc-city", where.city),
            ("x-loc-state-name", where.region),
            ("x-loc-country", where.country),
            ("x-loc-timezone", where.timezone),
        ):
            if value is not None and value.isascii():  # Headers carry nothing else.
                headers[name] = value
        answer = await self._ask("GET", self._url, headers=headers, params=params)
        return _results(_member(_member(answer, "web", {}), "results"), search, "description")


class Tavily(SearchProvider):
    """The Tavily Search API (https://docs.tavily.com/documentation/api-reference/endpoint/search)."""

    def __init__(self, fetcher: Fetcher, url: str, api_key: str) -> None:
        super().__init__(fetcher)
        self._url = url.rstrip("/") + "/search"
        self._api_key = api_key

    async def search(self, search: Search) -> list[Result]:
        """Return the results."""
        body: dict[str, Any] = {
            "query": search.query,
            "max_results": min(search.max_results, _TAVILY_MAX_RESULTS),
            "search_depth": "basic",
        }
        if search.domains:
            body["include_domains"] = list(search.domains)
        headers = {"authorization": f"Bearer {self._api_key}", "content-type": "application/json"}
        answer = await self._ask("POST", self._url, headers=headers, content=orjson.dumps(body))
        return _results(_member(answer, "results"), search, "content")


def _parse(page: Page) -> Any:
    if not page.is_success:
        raise SearchFailed(f"The search service answered with status {page.status}.")
    try:
        return orjson.loads(page.content)
    except orjson.JSONDecodeError as error:
        raise SearchFailed("The search service did not answer in JSON.") from error


def _member(answer: Any, name: str, default: Any = ()) -> Any:
    return answer.get(name) or default if isinstance(answer, dict) else default


def _with_sites(search: Search) -> str:
    """Return a query for pages of the domains; engines without this syntax find too much, or nothing."""
    if not search.domains:
        return search.query
    sites = " OR ".join(f"site:{domain}" for domain in search.domains)
    return f"{search.query} ({sites})" if len(search.domains) > 1 else f"{search.query} {sites}"


def _results(answer: Any, search: Search, text: str) -> list[Result]:
    """Return the valid results, each page once; `text` is the field with the description."""
    found: dict[str, Result] = {}
    for one in answer if isinstance(answer, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("url"), str):
            continue
        url = one["url"]
        if len(url) > _MAX_URL_CHARS or not is_within(url, search.domains):
            continue
        found.setdefault(url, Result(url, _line(one.get("title"))[:_MAX_TITLE_CHARS] or url, _line(one.get(text))))
    return list(found.values())[: search.max_results]


def _line(text: Any) -> str:
    return " ".join(text.split()) if isinstance(text, str) else ""


def is_within(url: str, domains: tuple[str, ...]) -> bool:
    """Return whether a URL belongs to one of the domains or their subdomains; true without domains."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host:
        return False
    return not domains or any(host == domain or host.endswith(f".{domain}") for domain in domains)


def create_provider(config: ToolsConfig, environ: Mapping[str, str] | None = None) -> SearchProvider:
    """Return the search service, on whatever host the operator names; raises ConfigError if its API key is missing."""
    assert config.web_search is not None
    environ = os.environ if environ is None else environ
    provider = config.web_search.provider
    rules = config.outbound.rules
    rules = replace(rules, allowed_hosts=rules.allowed_hosts | {httpx2.URL(provider.url).host.lower().rstrip(".")})
    fetcher = Fetcher(rules, _SEARCH_BOUNDS)
    match provider:
        case SearXNGConfig():
            return SearXNG(fetcher, provider.url, provider.engines, provider.language)
        case BraveConfig():
            return Brave(fetcher, provider.url, follow(provider.api_key, environ, _API_KEY))
        case TavilyConfig():
            return Tavily(fetcher, provider.url, follow(provider.api_key, environ, _API_KEY))
