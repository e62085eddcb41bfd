"""Returns web pages as text: fetches them through the guarded transport, and reads HTML in bounded processes."""

import asyncio
import codecs
import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from deployments.bounded_process import Bounds, ProcessFailed, run
from deployments.tools.config import ToolsConfig
from deployments.tools.outbound.fetching import FetchBounds, Fetcher, Page
from deployments.tools.web_search.providers import is_within

_PROCESS = "deployments.tools.web_search.reader_process"
_PAGE_BOUNDS = FetchBounds(max_s=20.0, max_bytes=5 * 1024 * 1024, max_redirects=5)
_BOUNDS = Bounds(cpu_s=3, wall_s=15.0, memory_bytes=1024 * 1024 * 1024, output_bytes=64 * 1024 * 1024)
_MAX_CHARS = 1_000_000
_TITLE_CHARS = 300
_HTML = frozenset({"text/html", "application/xhtml+xml", ""})
_TEXT = re.compile(r"text/.*|application/(?:.*\+)?(?:json|xml|yaml|javascript|x-ndjson)")
# Encodings of the web. Hostile pages could make others, such as punycode, take for ever.
_SAFE_ENCODINGS = re.compile(
    r"utf-(?:8|16|32)(?:-[bl]e|-sig)?|ascii|iso8859-\d+|cp\d+|koi8-[rtu]|mac-\w+|gb\w+|hz|big5\w*|euc_\w+|"
    r"shift_jis\w*|iso2022_\w+|johab|tis-620"
)
_CHARSET = re.compile(r"charset=\"?([\w.:-]{1,40})", re.IGNORECASE)


class PageUnreadable(Exception):
    """A page cannot be read; `message` has the reason, for the model."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class PageText:
    """A page as text; `url` is its address after redirects."""

    url: str
    title: str
    text: str


class PageReader:
    """Fetches pages and returns their text; reads a few HTML pages at a time."""

    def __init__(self, fetcher: Fetcher, num_at_once: int = 4) -> None:
        self._fetcher = fetcher
        self._threads = ThreadPoolExecutor(num_at_once, thread_name_prefix="page_reader")

    async def read(self, url: str, domains: tuple[str, ...] = ()) -> PageText:
        """Return the text of the page at an address, which must belong to one of the domains if any are given.

        Raises:
            OutboundError: it may not or cannot be fetched.
            PageUnreadable: it does not exist, is on another domain, or is no text.
        """
        page = await self._fetcher.fetch(url)
        if not page.is_success:
            raise PageUnreadable(f"The page answered with status {page.status}.")
        if not is_within(page.url, domains):
            raise PageUnreadable("The page leads to a domain that is not allowed.")
        kind = page.content_type.partition(";")[0].strip().lower()
        if kind in _HTML:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, _read_html, page)
        if _TEXT.fullmatch(kind) is None:
            raise PageUnreadable(f"The page is not text but '{kind[:60]}', which is not read.")
        return PageText(page.url, page.url, _decode(page)[:_MAX_CHARS])

    async def aclose(self) -> None:
        """Close every connection, and start no more processes; running ones end within their limits."""
        await self._fetcher.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _encoding_of(page: Page) -> str | None:
    found = _CHARSET.search(page.content_type)
    return found[1] if found else None


def _decode(page: Page) -> str:
    try:
        encoding = codecs.lookup(_encoding_of(page) or "utf-8").name
    except LookupError:  # An unknown encoding.
        encoding = "utf-8"
    return page.content.decode(encoding if _SAFE_ENCODINGS.fullmatch(encoding) else "utf-8", errors="replace")


def _read_html(page: Page) -> PageText:
    about = json.dumps({"url": page.url, "encoding": _encoding_of(page)}).encode()
    try:
        read = json.loads(run(_PROCESS, about + b"\n" + page.content, _BOUNDS))
    except (ProcessFailed, ValueError, OSError) as error:
        raise PageUnreadable("The page could not be read: it is broken, or too much.") from error
    return PageText(page.url, read["title"][:_TITLE_CHARS] or page.url, read["text"])


def create_reader(config: ToolsConfig) -> PageReader:
    """Return the reader of web pages."""
    return PageReader(Fetcher(config.outbound.rules, _PAGE_BOUNDS))
