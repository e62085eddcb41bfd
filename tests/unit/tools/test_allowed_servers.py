"""Which addresses an operator's list of MCP servers allows; redirects are held against it too."""

import httpx2
import pytest
from pydantic import ValidationError

from deployments.tools.config import McpConfig
from deployments.tools.mcp.transport import AllowedServers, Notes, NotingTransport
from deployments.tools.outbound.errors import AddressRefused

SERVERS = AllowedServers(["https://MCP.example.com", "http://10.0.0.7:8765/mcp"])


@pytest.mark.parametrize(
    "url",
    [
        "https://mcp.example.com/",
        "https://mcp.example.com:443/a/b?c=d",
        "http://10.0.0.7:8765/mcp",
        "http://10.0.0.7:8765/mcp?key=1",
    ],
)
def test_server_of_the_list_is_allowed(url):
    SERVERS.check(httpx2.URL(url))


@pytest.mark.parametrize(
    "url",
    [
        "http://mcp.example.com/",
        "https://mcp.example.com:8443/",
        "https://mcp.example.com.evil.test/",
        "https://evil.test/?https://mcp.example.com",
        "http://10.0.0.7/mcp",
        "http://10.0.0.7:8765/",
        "http://10.0.0.7:8765/mcp/admin",
        "http://10.0.0.7:8765/mcp/../admin",
        "http://10.0.0.7:8765/MCP",
    ],
)
def test_other_address_is_refused(url):
    with pytest.raises(AddressRefused, match="allows other servers only"):
        SERVERS.check(httpx2.URL(url))


async def test_every_request_is_held_against_the_list():
    notes, sent = Notes(), []
    inner = httpx2.MockTransport(lambda request: sent.append(request.url) or httpx2.Response(200, stream=_Nothing()))
    transport = NotingTransport(inner, notes, SERVERS)
    await transport.handle_async_request(httpx2.Request("POST", "http://10.0.0.7:8765/mcp"))
    with pytest.raises(AddressRefused) as refused:
        await transport.handle_async_request(httpx2.Request("POST", "http://10.0.0.7:8265/api/jobs"))
    assert notes.failure is refused.value
    assert sent == [httpx2.URL("http://10.0.0.7:8765/mcp")]


class _Nothing(httpx2.AsyncByteStream):
    async def __aiter__(self):
        return
        yield b""


@pytest.mark.parametrize("address", ["ftp://a/", "a.example.com", "http://user@a/", "http://a/?b"])
def test_address_that_is_none_is_refused_in_the_configuration(address):
    with pytest.raises(ValidationError, match="allowed_servers"):
        McpConfig.model_validate({"allowed_servers": [address]})
