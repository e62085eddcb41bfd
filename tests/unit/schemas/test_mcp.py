"""Remote MCP servers in requests."""

import pytest
from pydantic import ValidationError

from serve_app.schemas.responses.mcp import McpTool, redacted, without_secrets
from serve_app.schemas.responses.request import ResponseRequest

TOOL = {"type": "mcp", "server_label": "store", "server_url": "https://example.com/mcp"}


def tool(**more):
    return McpTool.model_validate({**TOOL, **more})


@pytest.mark.parametrize(
    ("policy", "read", "write"),
    [
        (None, True, True),
        ("always", True, True),
        ("never", False, False),
        ({}, True, True),
        ({"never": {"tool_names": ["read"]}}, False, True),
        ({"never": {"read_only": True}}, False, True),
        ({"never": {"read_only": False, "tool_names": ["read"]}}, True, True),
        ({"never": {}}, True, True),
        ({"always": {}}, True, True),
        ({"always": {"tool_names": ["read"]}, "never": {"tool_names": ["read", "write"]}}, True, False),
        ({"always": {"tool_names": ["read"]}}, True, True),
    ],
)
def test_what_needs_approval(policy, read, write):
    made = tool(require_approval=policy)
    assert made.needs_approval("read", is_read_only=True) == read
    assert made.needs_approval("write", is_read_only=False) == write


@pytest.mark.parametrize(
    ("allowed", "read", "write"),
    [
        (None, True, True),
        ([], False, False),
        (["read"], True, False),
        ({}, True, True),
        ({"tool_names": ["write"]}, False, True),
        ({"read_only": True}, True, False),
        ({"read_only": True, "tool_names": ["write"]}, False, False),
    ],
)
def test_what_is_allowed(allowed, read, write):
    made = tool(allowed_tools=allowed)
    assert made.is_allowed("read", is_read_only=True) == read
    assert made.is_allowed("write", is_read_only=False) == write


def test_secrets_are_sent_but_neither_shown_nor_kept():
    secret = {**TOOL, "server_url": "https://example.com/a?key=b", "headers": {"X-A": "secret"}, "authorization": "t"}
    made = McpTool.model_validate(secret)
    assert made.sent_headers == {"X-A": "secret", "Authorization": "Bearer t"}
    assert tool().sent_headers == {}
    assert made.to_wire()["server_url"] == "https://example.com/<redacted>"
    for text in (repr(made), str(made.to_wire())):
        assert "secret" not in text
        assert "key" not in text
    body, lacks_secrets = without_secrets({"model": "m", "tools": [{"type": "function", "name": "f"}, secret]})
    assert lacks_secrets
    assert body["tools"][1] == {**TOOL, "server_url": "https://example.com/a"}
    for plain in ({"model": "m"}, {"tools": None}, {"tools": [{**TOOL, "headers": None}]}):
        assert without_secrets(plain) == (plain, False)


def test_only_the_host_of_an_address_is_shown():
    assert redacted("https://example.com") == redacted("https://example.com/") == "https://example.com/"
    assert redacted("http://example.com:81/a") == "http://example.com:81/<redacted>"
    assert redacted("http://example.com?a=b") == "http://example.com/<redacted>"


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"server_label": "1"}, "server_label"),
        ({"server_url": None}, "server_url"),
        ({"tunnel_id": "t"}, "tunnel_id"),
        ({"authorization": ""}, "authorization"),
        ({"authorization": "a\nb"}, "authorization"),
        ({"authorization": "a", "headers": {"AUTHORIZATION": "b"}}, "authorization"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": {"Content-Length": "3"}}, "headers"),
        ({"headers": {"a": "b\r\nc"}}, "headers"),
        ({"headers": {"a": "€"}}, "headers"),
        ({"headers": {str(number): "" for number in range(65)}}, "headers"),
        ({"allowed_tools": ["a"] * 513}, "allowed_tools"),
        ({"require_approval": {"sometimes": {}}}, "require_approval"),
    ],
)
def test_what_is_refused(more, place):
    with pytest.raises(ValidationError) as caught:
        tool(**more)
    (finding, *_) = caught.value.errors()
    assert place in (*finding["loc"], finding.get("ctx", {}).get("at", "").removeprefix("."))
    assert "b\r\nc" not in finding["msg"]


def test_two_servers_need_two_labels():
    body = {"model": "m", "input": "x", "tools": [TOOL, {**TOOL, "server_label": "other"}]}
    assert len(ResponseRequest.model_validate(body).tools) == 2
    with pytest.raises(ValidationError):
        ResponseRequest.model_validate({**body, "tools": [TOOL, TOOL]})


def test_no_request_names_more_than_a_few_servers():
    tools = [{**TOOL, "server_label": f"store_{number}"} for number in range(17)]
    assert ResponseRequest.model_validate({"model": "m", "input": "x", "tools": tools[:16]})
    with pytest.raises(ValidationError):
        ResponseRequest.model_validate({"model": "m", "input": "x", "tools": tools})
