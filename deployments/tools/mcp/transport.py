"""Sends requests to allowed servers only, and notes their outcome, which the library's own errors lack."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import httpx2

from deployments.tools.outbound.errors import AddressRefused, OutboundError

_DEFAULT_PORTS = {"http": 80, "https": 443}


class AllowedServers:
    """The servers that an operator allows, by their addresses; `hosts` are their hosts."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._places = {_place_of(httpx2.URL(address)) for address in addresses}
        self.hosts = frozenset(host.rstrip(".") for (_, host, _), _ in self._places)

    def check(self, url: httpx2.URL) -> None:
        """Raise AddressRefused if a server is not allowed."""
        origin, path = _place_of(url)
        if not {(origin, b"/"), (origin, path)} & self._places:
            raise AddressRefused("The operator of this service allows other servers only.")


def _place_of(url: httpx2.URL) -> tuple[tuple[str, str, int | None], bytes]:
    """Return the scheme, host and port of an address, and its path as it is sent."""
    path = url.raw_path.partition(b"?")[0]
    return (url.scheme, url.host, url.port or _DEFAULT_PORTS.get(url.scheme)), path


@dataclass(slots=True)
class Notes:
    """The status of the last answer, and the last failure, since they were cleared."""

    status: int = 200
    failure: OutboundError | None = None

    def clear(self) -> None:
        """Forget what happened."""
        self.status, self.failure = 200, None


class NotingTransport(httpx2.AsyncBaseTransport):
    """Sends requests through another transport, only to `allowed` servers if given, and notes their outcome."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, notes: Notes, allowed: AllowedServers | None = None) -> None:
        self._inner = inner
        self._notes = notes
        self._allowed = allowed

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the answer with its content unread, or raise OutboundError."""
        try:
            if self._allowed is not None:  # A redirect may lead elsewhere.
                self._allowed.check(request.url)
            response = await self._inner.handle_async_request(request)
        except OutboundError as error:
            self._notes.failure = error
            raise
        self._notes.status = response.status_code
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _NotingStream(response.stream, self._notes)
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        await self._inner.aclose()


class _NotingStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                yield piece
        except OutboundError as error:
            self._notes.failure = error
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()
