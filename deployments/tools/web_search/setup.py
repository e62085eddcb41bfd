"""Makes the search provider and the page reader that a configuration names."""

import os
from collections.abc import Mapping
from dataclasses import replace

import httpx2

from deployments.config import follow
from deployments.tools.config import BraveConfig, SearXNGConfig, TavilyConfig, ToolsConfig
from deployments.tools.outbound.fetching import FetchBounds, Fetcher
from deployments.tools.web_search.providers import Brave, SearchProvider, SearXNG, Tavily
from deployments.tools.web_search.reader import PageReader

_API_KEY = "tools.web_search.provider.api_key"
_SEARCH_BOUNDS = FetchBounds(max_s=15.0)
_PAGE_BOUNDS = FetchBounds(max_s=20.0, max_bytes=5 * 1024 * 1024, max_redirects=5)


def create_provider(config: ToolsConfig, environ: Mapping[str, str] | None = None) -> SearchProvider:
    """Return the search service; its host may be anywhere, as the operator names it.

    Raises:
        ConfigError: its API key is not where the configuration says.
    """
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


def create_reader(config: ToolsConfig) -> PageReader:
    """Return the reader of web pages."""
    return PageReader(Fetcher(config.outbound.rules, _PAGE_BOUNDS))
