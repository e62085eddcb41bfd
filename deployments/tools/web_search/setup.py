"""The web search of a configuration: who is asked, and who reads pages."""

import os
from collections.abc import Mapping
from dataclasses import replace

import httpx2

from deployments.references import follow
from deployments.tools.config import BraveConfig, SearXNGConfig, TavilyConfig, ToolsConfig
from deployments.tools.outbound.fetching import Bounds, Fetcher
from deployments.tools.web_search.providers import Brave, SearchProvider, SearXNG, Tavily
from deployments.tools.web_search.reader import PageReader

_API_KEY = "tools.web_search.provider.api_key"


def create_provider(config: ToolsConfig, environ: Mapping[str, str] | None = None) -> SearchProvider:
    """Return the service that is asked; as the operator names its host, it may be wherever it is.

    Raises:
        ConfigError: its API key is not where the configuration says.
    """
    assert config.web_search is not None
    environ = os.environ if environ is None else environ
    told = config.web_search.provider
    rules = config.outbound.rules
    rules = replace(rules, allowed_hosts=rules.allowed_hosts | {httpx2.URL(told.url).host.lower().rstrip(".")})
    fetcher = Fetcher(rules, Bounds(max_s=config.web_search.search_timeout_s))
    match told:
        case SearXNGConfig():
            return SearXNG(fetcher, told.url, told.engines, told.language)
        case BraveConfig():
            return Brave(fetcher, told.url, follow(told.api_key, environ, _API_KEY))
        case TavilyConfig():
            return Tavily(fetcher, told.url, follow(told.api_key, environ, _API_KEY))


def create_reader(config: ToolsConfig) -> PageReader:
    """Return who fetches and reads pages."""
    assert config.web_search is not None
    told = config.web_search
    bounds = Bounds(max_s=told.page_timeout_s, max_bytes=told.max_page_bytes, max_redirects=told.max_redirects)
    return PageReader(Fetcher(config.outbound.rules, bounds))
