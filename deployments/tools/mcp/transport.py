"""Notes the outcome of requests to a server, which the library's own errors do not say."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2

from deployments.tools.outbound.errors import OutboundError


@dataclass(slots=True)
class Notes:
    """The status of the last answer, and the last failure, since they were cleared."""

    status: int = 200
    failure: OutboundError | None = None

    def clear(self) -> None:
        """Forget what happened."""
        self.status, self.failure = 200, None


class NotingTransport(httpx2.AsyncBaseTransport):
    """Sends requests through another transport, and notes their outcome."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, notes: Notes) -> None:
        self._inner = inner
        self._notes = notes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the answer, its content still to be read.

        Raises:
            OutboundError: it may not be sent, or failed.
        """
        try:
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
    """The content of an answer."""

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
