"""Fetches one page from the outside, following redirects, within limits of time and size.

Keeps no cookies and sends no passwords: fetches share nothing.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httpx2

from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.outbound.errors import AddressRefused, NoAnswer
from deployments.tools.outbound.transport import MAX_BYTES, GuardedTransport, Resolve

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TOO_SLOW = "The host took too long to answer."
_USER_AGENT = "Manta (a reader on behalf of a person)"


@dataclass(frozen=True, slots=True)
class FetchBounds:
    """The limits of one fetch, with all its redirects."""

    max_s: float = 20.0
    max_bytes: int = MAX_BYTES
    max_redirects: int = 5
    connect_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Page:
    """A fetched page; `url` is its address after redirects."""

    url: str
    status: int
    content_type: str
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether it is the page itself, not an error."""
        return 200 <= self.status < 300


class Fetcher:
    """Fetches pages that the rules allow."""

    def __init__(
        self,
        rules: AddressRules,
        bounds: FetchBounds | None = None,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._bounds = bounds or FetchBounds()
        self._transport = GuardedTransport(rules, self._bounds.max_bytes, resolve, tls)

    async def fetch(self, url: str) -> Page:
        """Return the page at an address, or raise OutboundError; follows redirects, but never from https to http."""
        request = httpx2.Request("GET", _parse(url), headers=_own())
        try:
            async with asyncio.timeout(self._bounds.max_s):
                return await self._follow(request)
        except TimeoutError:
            raise NoAnswer(_TOO_SLOW) from None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Page:
        """Return the answer to one request, or raise OutboundError; does not send the headers on to a redirect."""
        request = httpx2.Request(method, _parse(url), headers=_own(headers), params=params, content=content)
        try:
            async with asyncio.timeout(self._bounds.max_s):
                return (await self._send(request))[0]
        except TimeoutError:
            raise NoAnswer(_TOO_SLOW) from None

    async def _follow(self, request: httpx2.Request) -> Page:
        for _ in range(self._bounds.max_redirects + 1):
            page, location = await self._send(request)
            if page.status not in _REDIRECTS or location is None:
                return page
            url = _parse(location, base=request.url)
            if request.url.scheme == "https" and url.scheme == "http":
                raise AddressRefused("The address redirects from https to http, which is not followed.")
            request = httpx2.Request("GET", url, headers=_own())
        raise NoAnswer(f"The address redirects more than {self._bounds.max_redirects} times.")

    async def _send(self, request: httpx2.Request) -> tuple[Page, str | None]:
        """Return the answer to one request, and the address that it redirects to."""
        each_s = min(self._bounds.connect_s, self._bounds.max_s)
        request.extensions["timeout"] = httpx2.Timeout(self._bounds.max_s, connect=each_s).as_dict()
        response = await self._transport.handle_async_request(request)
        try:
            content = b"".join([piece async for piece in response.aiter_bytes()])
        finally:
            await response.aclose()
        headers = response.headers
        page = Page(str(request.url), response.status_code, headers.get("content-type", ""), content)
        return page, headers.get("location")

    async def aclose(self) -> None:
        """Close every connection."""
        await self._transport.aclose()


def _own(headers: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"user-agent": _USER_AGENT, **(headers or {})}


def _parse(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, TypeError, ValueError):  # The library raises all of these for malformed URLs.
        raise AddressRefused("The address is malformed.") from None
    return parsed.copy_with(fragment=None)
