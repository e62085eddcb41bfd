"""A client of remote MCP servers over streamable HTTP, through the guarded transport.

A session serves one response, and opens at its first use. Servers only get calls: they may not ask the service for
samples, files or input, and messages other than results are dropped. Nothing is logged.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import httpx2
import mcp_types as types
import orjson
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from deployments.tools.config import McpConfig
from deployments.tools.mcp.messages import CallResult, ListedTool, McpFailure, ServerAddress
from deployments.tools.mcp.transport import AllowedServers, Notes, NotingTransport
from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.outbound.errors import AddressRefused
from deployments.tools.outbound.transport import GuardedTransport, Resolve, SystemResolver

T = TypeVar("T")

_CLIENT = types.Implementation(name="manta", version="1")
_CONNECT_S = 5.0
_CLOSE_S = 5.0
_MAX_PAGES = 20
_MAX_MESSAGE_CHARS = 1000
_INVALID_REQUEST = -32600
_NOT_MCP = "The server's answer is not as MCP has it."
_LOST = "The connection to the server broke."
# The library's messages for HTTP errors of a server; the status is more useful.
_STAND_INS = (
    "Server returned an error response",
    "Not Found",
    "Session terminated",
    "Redirect to ",
    "Unexpected content type",
)


class McpServers:
    """The servers that this deployment may reach.

    Args:
        config: the bounds.
        rules: where requests may go.
        resolve: how names are looked up.
    """

    def __init__(self, config: McpConfig, rules: AddressRules, resolve: Resolve | None = None) -> None:
        self.config = config
        self._allowed: AllowedServers | None = None
        self._rules = rules
        if config.allowed_servers is not None:
            self._allowed = AllowedServers(config.allowed_servers)
            self._rules = replace(rules, allowed_hosts=rules.allowed_hosts | self._allowed.hosts)
        self._resolver = SystemResolver()
        self._resolve = resolve or self._resolver
        self._tls = httpx2.create_ssl_context()  # Made once: it takes longer than most calls.
        self._holders: set[asyncio.Task[None]] = set()
        _silence()

    def check(self, url: str) -> None:
        """Raise AddressRefused if no requests may be sent to an address, whatever its host resolves to."""
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError, ValueError):
            raise AddressRefused("The address is malformed.") from None
        self._rules.check_url(parsed)
        if self._allowed is not None:
            self._allowed.check(parsed)

    def session(self, address: ServerAddress) -> "McpSession":
        """Return a session with a server; nothing is sent yet."""
        return McpSession(self, address)

    @asynccontextmanager
    async def connect(self, address: ServerAddress, notes: Notes) -> AsyncIterator[Client]:
        """Open a connection to a server; `notes` gets the outcome of each request."""
        most = self.config.max_answer_bytes
        guarded = GuardedTransport(self._rules, most, self._resolve, self._tls)
        http = httpx2.AsyncClient(
            transport=NotingTransport(guarded, notes, self._allowed),
            trust_env=False,
            headers=address.headers,
            timeout=httpx2.Timeout(self.config.timeout_s, connect=min(_CONNECT_S, self.config.timeout_s)),
        )
        streams = streamable_http_client(address.url, http_client=http, max_sse_event_size=most)
        client = Client(streams, client_info=_CLIENT, cache=None)
        async with http, client:
            yield client

    def keep(self, holder: "asyncio.Task[None]") -> None:
        """Remember a task that holds a connection, until it ends."""
        self._holders.add(holder)
        holder.add_done_callback(self._holders.discard)

    def close(self) -> None:
        """Abort every connection."""
        for holder in self._holders:
            holder.cancel()
        self._resolver.close()


class McpSession:
    """The session of one response with one server.

    One task holds the connection, as the library requires the same task to open and close it. Calls come from other
    tasks, which may be cancelled without harm to it. A broken connection opens again at the next use.
    """

    def __init__(self, servers: McpServers, address: ServerAddress) -> None:
        self._servers = servers
        self._address = address
        self._max_s = servers.config.timeout_s
        self._holder: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._client: Client | None = None
        self._failure: McpFailure | None = None
        self._notes = Notes()

    async def list_tools(self) -> list[ListedTool]:
        """Return the server's tools, or raise McpFailure."""
        return await self._ask(_list_tools)

    async def call(self, name: str, arguments: dict[str, Any]) -> CallResult:
        """Call a tool; raises McpFailure if the server does not answer. A tool's own failure is a result."""
        return await self._ask(lambda client: _call(client, name, arguments))

    async def _ask(self, ask: Callable[[Client], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._max_s):
                self._notes.clear()
                return await ask(await self._connected())
        except TimeoutError:
            raise McpFailure(f"The server took longer than {self._max_s:g} s.") from None
        except McpFailure:
            raise
        except Exception as error:
            raise self._explain(error) from None

    async def _connected(self) -> Client:
        if self._holder is None or self._holder.done():
            self._is_ready, self._closing, self._failure = asyncio.Event(), asyncio.Event(), None
            self._holder = asyncio.create_task(self._hold(self._is_ready, self._closing))
            self._servers.keep(self._holder)
        await self._is_ready.wait()
        if self._client is None:
            raise self._failure or McpFailure(_LOST)
        return self._client

    async def _hold(self, is_ready: asyncio.Event, closing: asyncio.Event) -> None:
        """Keep a connection open until the session closes, or it breaks."""
        try:
            async with self._servers.connect(self._address, self._notes) as client:
                self._client = client
                is_ready.set()
                await closing.wait()
        except Exception as error:
            self._failure = self._explain(error)
        finally:
            self._client = None
            is_ready.set()

    def _explain(self, error: Exception) -> McpFailure:
        """Return why a request failed; the transport's notes are more precise than the library's error."""
        reported = next((leaf for leaf in _leaves(error) if isinstance(leaf, MCPError)), None)
        if self._notes.failure is not None and (reported is None or reported.code == types.CONNECTION_CLOSED):
            return McpFailure(self._notes.failure.message)
        if reported is None:
            is_lost = any(isinstance(leaf, httpx2.HTTPError) for leaf in _leaves(error))
            return McpFailure(_LOST) if is_lost else McpFailure(_NOT_MCP, _INVALID_REQUEST)
        status = self._notes.status
        if status >= 300 and reported.message.startswith(_STAND_INS):
            return McpFailure(f"The server answered with HTTP status {status}.", status, "http_error")
        return McpFailure(reported.message[:_MAX_MESSAGE_CHARS], reported.code)

    def close(self) -> None:
        """Close the connection without waiting for the server."""
        holder, self._holder = self._holder, None
        if holder is None or holder.done():
            return
        if not self._is_ready.is_set():
            holder.cancel()
            return
        self._closing.set()
        deadline = asyncio.get_running_loop().call_later(_CLOSE_S, holder.cancel)
        holder.add_done_callback(lambda _: deadline.cancel())


async def _list_tools(client: Client) -> list[ListedTool]:
    found: list[ListedTool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
            found.append(ListedTool(tool.name, tool.description, tool.input_schema, hints))
        cursor = page.next_cursor
        if not cursor:
            return found
    raise McpFailure(f"The server lists its tools on more than {_MAX_PAGES} pages.", _INVALID_REQUEST)


async def _call(client: Client, name: str, arguments: dict[str, Any]) -> CallResult:
    """Call a tool without the library's check of the result, which would list the tools each time."""
    params = types.CallToolRequestParams(name=name, arguments=arguments)
    request = types.CallToolRequest(params=params)
    try:
        result = await client.session.send_request(request, types.CallToolResult)
    except MCPError as error:
        if error.code != types.HEADER_MISMATCH:
            raise
        await client.list_tools()  # There the library finds which arguments this server wants as headers.
        result = await client.session.send_request(request, types.CallToolResult)
    content = [part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in result.content]
    text = "\n".join(_text_of(part) for part in result.content)
    if not result.content and result.structured_content is not None:
        text = orjson.dumps(result.structured_content).decode()
    return CallResult(content, text, result.is_error)


def _text_of(part: Any) -> str:
    match part:
        case types.TextContent():
            return part.text
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.ResourceLink():
            return f"[{part.name}: {part.uri}]"
    return f"[Content of the type '{part.type}', which is not shown.]"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _silence() -> None:
    """Keep content out of the log: the libraries quote it in their errors."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
