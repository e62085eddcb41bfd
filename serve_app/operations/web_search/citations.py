"""The texts and pages of a conversation, and a message's citations of pages."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from serve_app.operations.responses.events.writer import Item

# Brackets belong to an address in pairs only, so that a Markdown link's own bracket does not.
_INSIDE = r"(?:[^\s<>()\[\]\"'`{}|\\^]|\([^\s<>()\[\]\"]*\))"
_ADDRESS = rf"https?://(?:\[[0-9a-fA-F:.]{{2,45}}\]|{_INSIDE}){_INSIDE}*"
_LINK = re.compile(rf"\[(?P<label>[^\[\]]{{0,500}})\]\(\s*<?(?P<linked>{_ADDRESS})>?\s*\)|(?P<bare>{_ADDRESS})")
_TRAILING = ".,;:!?*_"


def same(url: str) -> str:
    """Return a URL in a form that is the same for one page: without fragment and final slash, host in lower case."""
    url = url.partition("#")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl().rstrip("/")


def cite(text: str, titles: Mapping[str, str]) -> list[Item]:
    """Return a citation for each Markdown link or bare URL of a page in `titles`.

    Its range of characters is the whole link, with label and brackets.
    """
    cited = []
    for found in _LINK.finditer(text):
        start, end = found.span()
        url = found["linked"]
        if url is None:
            url = found["bare"].rstrip(_TRAILING)
            end = start + len(url)
        title = titles.get(same(url))
        if title is not None:
            place = {"start_index": start, "end_index": end}
            cited.append({"type": "url_citation", "url": url, "title": title, **place})
    return cited


def texts_of(items: Iterable[Item]) -> Iterator[str]:
    """Yield the texts of a conversation that people and the client's functions wrote, not the model."""
    for item in items:
        if item.get("role") == "assistant":
            continue
        content: Any = item.get("content") if item["type"] == "message" else item.get("output")
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part.get("text"), str):
                yield part["text"]


def titles_of(items: Iterable[Item]) -> dict[str, str]:
    """Return the titles of the pages that a conversation has found, opened or cited."""
    titles: dict[str, str] = {}
    for item in items:
        if item["type"] == "web_search_call":
            action = item.get("action") or {}
            urls = [action.get("url"), *(source["url"] for source in action.get("sources") or ())]
            titles.update({same(url): url for url in urls if url and same(url) not in titles})
        for part in item.get("content") or () if item["type"] == "message" else ():
            for one in part.get("annotations") or ():
                if isinstance(one, dict) and one.get("type") == "url_citation":
                    titles[same(str(one.get("url")))] = str(one.get("title"))
    return titles
