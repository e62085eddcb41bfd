"""The guarded transport: every request to the outside goes through it, from any client.

It resolves a host once for each connection, checks the addresses, and connects to one of them, so that no second lookup
can lead elsewhere; the Host header and the TLS name stay the same. It uses no proxy from the environment, and limits
answers, both packed and unpacked. Clients follow redirects themselves: every hop goes through here.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpcore2
import httpx2

from deployments.steps import trace_parent
from deployments.tools.outbound.addresses import NOT_PUBLIC, AddressRules
from deployments.tools.outbound.errors import AddressRefused, AnswerTooLarge, AnswerUnreadable, NoAnswer, OutboundError

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns a host's addresses in the order to try them; raises `OSError` if there are none."""

MAX_BYTES = 8 * 1024 * 1024
_MAX_TRIED = 4
_MAX_CONNECTIONS = 100
_KEEP_ALIVE_S = 5.0
_TOO_SLOW = "The host took too long to answer."
_ENCODINGS = "gzip, deflate"
_READABLE = frozenset({"", "identity", "gzip", "deflate"})


class SystemResolver:
    """The system's resolver, in its own threads, so that slow names delay nothing else."""

    def __init__(self, num_threads: int = 8) -> None:
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return a host's addresses; the host may be an address in any notation that the system knows."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host, port)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """End the threads after their current lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, rules: AddressRules, resolve: Resolve) -> None:
        self._rules = rules
        self._resolve = resolve
        self._sockets = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Resolve a host, and connect to the first of its allowed addresses that answers.

        Raises:
            AddressRefused: no address is allowed, or the host is unknown; not telling which hides private names.
            NoAnswer: no address answers, or a host that the operator has named is unknown.
        """
        try:
            async with asyncio.timeout(timeout):
                found = await self._resolve(host, port)
        except TimeoutError:
            raise NoAnswer(_TOO_SLOW) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: no encoding fits the name.
            if self._rules.names(host):
                raise NoAnswer("The host could not be found.") from error
            raise AddressRefused(NOT_PUBLIC) from error
        addresses = self._rules.choose(host, found)[:_MAX_TRIED]
        each_s = None if timeout is None else timeout / len(addresses)
        for address in addresses:
            try:
                return await self._sockets.connect_tcp(address, port, each_s, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        raise NoAnswer("The host could not be reached.")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse: a socket of this machine is not outside."""
        raise NoAnswer("Sockets of this machine are not reached.")

    async def sleep(self, seconds: float) -> None:
        """Wait; the pool does so between attempts."""
        await asyncio.sleep(seconds)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests that the rules allow; for an `httpx2.AsyncClient`, or for `fetching`.

    Create the client with `trust_env=False`, or it reads passwords for hosts from the environment. `max_bytes` limits
    an answer, both as sent and as unpacked; None for no limit.
    """

    def __init__(
        self,
        rules: AddressRules,
        max_bytes: int | None = MAX_BYTES,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._rules = rules
        self._max_bytes = max_bytes
        self._resolver = SystemResolver()
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or httpx2.create_ssl_context(),
            max_connections=_MAX_CONNECTIONS,
            max_keepalive_connections=_MAX_CONNECTIONS // 5,
            keepalive_expiry=_KEEP_ALIVE_S,
            network_backend=GuardedBackend(rules, resolve or self._resolver),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and return the answer, unpacked and with its content unread, or raise OutboundError."""
        self._rules.check_url(request.url)
        headers = httpx2.Headers(request.headers)
        headers["accept-encoding"] = _ENCODINGS
        if self._rules.is_traced(request.url.host) and (parent := trace_parent()):
            headers["traceparent"] = parent
        url = request.url
        sent = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=headers.raw,
            content=request.stream,
            extensions={"timeout": request.extensions.get("timeout", {})},
        )
        with _translated():
            answer = await self._pool.handle_async_request(sent)
        return await self._received(answer)

    async def _received(self, answer: httpcore2.Response) -> httpx2.Response:
        headers = httpx2.Headers(answer.headers)
        if headers.get("content-encoding", "").strip().lower() not in _READABLE:
            await answer.aclose()
            raise AnswerUnreadable("The answer is packed in a way that was not asked for.")
        packed = httpx2.Response(answer.status, headers=headers, stream=_Pieces(answer, self._max_bytes))
        for name in ("content-encoding", "content-length"):
            headers.pop(name, None)
        return httpx2.Response(
            answer.status,
            headers=headers,
            stream=_Unpacked(packed, self._max_bytes),
            extensions={"http_version": answer.extensions.get("http_version", b"HTTP/1.1")},
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()
        self._resolver.close()


class _Pieces(httpx2.AsyncByteStream):
    """The content of an answer as it is sent, up to a limit."""

    def __init__(self, answer: httpcore2.Response, max_bytes: int | None) -> None:
        self._answer = answer
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translated():
            async for piece in _bounded(self._answer.aiter_stream(), self._max_bytes):
                yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


class _Unpacked(httpx2.AsyncByteStream):
    """The content of an answer, unpacked piece by piece, up to a limit."""

    def __init__(self, packed: httpx2.Response, max_bytes: int | None) -> None:
        self._packed = packed
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            # httpx2 unpacks at most a mebibyte at a time.
            async for piece in _bounded(self._packed.aiter_bytes(), self._max_bytes):
                yield piece
        except httpx2.DecodingError as error:
            raise AnswerUnreadable("The answer is not packed as it says.") from error

    async def aclose(self) -> None:
        await self._packed.aclose()


async def _bounded(pieces: AsyncIterator[bytes], max_bytes: int | None) -> AsyncIterator[bytes]:
    num_bytes = 0
    async for piece in pieces:
        num_bytes += len(piece)
        if max_bytes is not None and num_bytes > max_bytes:
            raise AnswerTooLarge(f"The answer is longer than {max_bytes} bytes.")
        yield piece


_REASONS: dict[type[Exception], str] = {
    httpcore2.TimeoutException: _TOO_SLOW,
    httpcore2.ConnectError: "No secure connection to the host could be made.",
    httpcore2.NetworkError: "The connection broke.",
    httpcore2.ProtocolError: "The host does not speak HTTP as it should.",
    httpcore2.UnsupportedProtocol: "The host does not speak HTTP as it should.",
}


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OutboundError:
        raise
    except tuple(_REASONS) as error:
        reason = next(reason for kind, reason in _REASONS.items() if isinstance(error, kind))
        raise NoAnswer(reason) from error
