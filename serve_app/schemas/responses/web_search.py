"""The web search as a tool of a response, with its options, and its calls as items."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, Field

from deployments.operations import Operation
from serve_app.schemas.base import WireModel, invalid
from serve_app.schemas.responses.built_in_tool import RESULTS_NOT_KEPT, BuiltInItem, BuiltInTool, ItemId, Shown

MAX_ALLOWED_DOMAINS = 100
_DOMAIN = re.compile(r"(?=.{1,253}$)(?!-)[a-zA-Z0-9-]{1,63}(?:\.(?!-)[a-zA-Z0-9-]{1,63})+")


def _check_domain(domain: str) -> str:
    if _DOMAIN.fullmatch(domain) is None:
        raise invalid(
            "Invalid '{param}': expected a domain alone, such as 'example.com', without 'https://' and without a path."
        )
    return domain.lower()


Domain = Annotated[str, AfterValidator(_check_domain)]
LocationPart = Annotated[str, Field(max_length=256)]
SearchContextSize = Literal["low", "medium", "high"]


class SearchFilters(WireModel):
    """The domains, and their subdomains, whose pages may be found.

    Args:
        allowed_domains: domains such as `example.com`; their subdomains are allowed too.
    """

    allowed_domains: Annotated[list[Domain], Field(fail_fast=True, max_length=MAX_ALLOWED_DOMAINS)] | None = None


class UserLocation(WireModel):
    """The approximate location of the user.

    Args:
        type: always `approximate`.
        country: a country code of two letters.
        region: a region or state.
        city: a city.
        timezone: a time zone such as `Europe/Berlin`.
    """

    type: Literal["approximate"] | None = None
    country: Annotated[str, Field(pattern=r"^[a-zA-Z]{2}$")] | None = None
    region: LocationPart | None = None
    city: LocationPart | None = None
    timezone: LocationPart | None = None


class WebSearchTool(BuiltInTool):
    """A search of the web; the model may open its pages unless `external_web_access` is false.

    Args:
        type: the tool's name, with or without a version.
        search_context_size: how much of the found pages the model reads.
        external_web_access: `false` keeps the model from opening pages.
    """

    tool = Operation.WEB_SEARCH
    type: Literal["web_search", "web_search_2025_08_26"]
    filters: SearchFilters | None = None
    user_location: UserLocation | None = None
    search_context_size: SearchContextSize | None = None
    external_web_access: bool | None = None

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that the search is limited to; empty is all."""
        return tuple(self.filters.allowed_domains or ()) if self.filters is not None else ()


class WebSearchPreviewTool(BuiltInTool):
    """The same tool under its older name.

    Args:
        type: the tool's older name, with or without a version.
        search_context_size: how much of the found pages the model reads.
        search_content_types: the kinds of results. Only `text` is supported.
    """

    tool = Operation.WEB_SEARCH
    type: Literal["web_search_preview", "web_search_preview_2025_03_11"]
    user_location: UserLocation | None = None
    search_context_size: SearchContextSize | None = None
    search_content_types: Annotated[list[Literal["text"]], Field(max_length=2)] | None = None


class SearchSource(WireModel):
    """A page that a search found.

    Args:
        url: the page's address.
    """

    type: Literal["url"]
    url: str


class SearchAction(WireModel):
    """A search of the web.

    Args:
        query: the text that was searched for.
        queries: the texts that were searched for.
        sources: the pages that were found.
    """

    type: Literal["search"]
    query: str | None = None
    queries: Annotated[list[str], Field(fail_fast=True, max_length=64)] | None = None
    sources: Annotated[list[SearchSource], Field(fail_fast=True, max_length=1024)] | None = None


class OpenPageAction(WireModel):
    """A page that was opened.

    Args:
        url: the page's address.
    """

    type: Literal["open_page"]
    url: str | None = None


class FindInPageAction(WireModel):
    """A text that was searched in a page.

    Args:
        url: the page's address.
        pattern: the text that was looked for.
    """

    type: Literal["find_in_page"]
    url: str | None = None
    pattern: str


class WebSearchCallItem(BuiltInItem):
    """A call of the web search.

    Args:
        action: what the model did: search, open a page, or look for a text in it.
        status: the state of the call.
    """

    id_prefix = "ws"
    type: Literal["web_search_call"]
    id: ItemId | None = None
    action: Annotated[SearchAction | OpenPageAction | FindInPageAction, Field(discriminator="type")] | None = None
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"] | None = None

    @classmethod
    def show(cls, item: Mapping[str, Any]) -> Shown | None:
        """Return the query, and the URLs that were found where the item has them."""
        action = item.get("action")
        if not action:
            return None
        name = "web_search" if action["type"] == "search" else action["type"]
        queries = action.get("queries") or [""]
        asked = {"query": action.get("query") or queries[0]} if name == "web_search" else action
        arguments = {key: asked[key] for key in ("query", "url", "pattern") if asked.get(key) is not None}
        found = "\n".join(source["url"] for source in action.get("sources") or ())
        return name, orjson.dumps(arguments).decode(), found or RESULTS_NOT_KEPT
