"""Remote MCP servers on the real service: a real model calls, the client approves, any ingress replica goes on."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.ports import free_port
from tests.service import CANARY, ROOT, TRAINED, Service, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    """The address of an MCP server in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "tests.twins.mcp_process", str(port)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            eventually(lambda: _answers(url), 60, "the server answers")
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return bool(httpx2.get(url).status_code)
    except httpx2.TransportError:
        return False


def test_the_model_calls_a_tool_and_a_call_is_approved_at_another_replica(
    service: Service, client: OpenAI, key: str, shop: str
) -> None:
    tool: Any = {"type": "mcp", "server_label": "store", "server_url": shop, "authorization": CANARY}
    first = client.responses.create(model=TRAINED, input="How much does a lamp cost?", tools=[tool], temperature=0)
    assert [item.type for item in first.output] == ["mcp_list_tools", "mcp_approval_request"]
    request = first.output[1]
    assert request.type == "mcp_approval_request"
    assert (request.name, request.arguments) == ("get_price", '{"product": "lamp"}')
    approval: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    for url in service.ingress_urls():
        with OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120) as direct:
            second = direct.responses.create(
                model=TRAINED, previous_response_id=first.id, input=[approval], tools=[tool], temperature=0
            )
        call = second.output[0]
        assert call.type == "mcp_call"
        assert (call.output, call.approval_request_id) == ("17 euros", request.id)
        assert second.output_text == "The price of lamp: 17 euros."


def test_a_call_that_needs_no_approval_is_answered_in_one_stream(client: OpenAI, shop: str) -> None:
    tool: Any = {"type": "mcp", "server_label": "store", "server_url": shop, "require_approval": "never"}
    asked = "Tell me the price of nails."
    with client.responses.stream(model=TRAINED, input=asked, tools=[tool], temperature=0) as stream:
        kinds = [event.type for event in stream if ".mcp_" in event.type or event.type == "response.completed"]
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["mcp_list_tools", "mcp_call", "message"]
    assert final.output_text == "The price of nails: 17 euros."
    assert kinds[-3:] == ["response.mcp_call_arguments.done", "response.mcp_call.completed", "response.completed"]


def test_other_private_addresses_stay_out_of_reach(client: OpenAI) -> None:
    tool: Any = {"type": "mcp", "server_label": "store", "server_url": "http://169.254.169.254/mcp"}
    response = client.responses.create(model=TRAINED, input="x", tools=[tool], max_output_tokens=5)
    listed = response.output[0]
    assert listed.type == "mcp_list_tools"
    assert "not on the public internet" in str(listed.error)
