"""LangChain, LlamaIndex, LiteLLM, Pydantic AI and `llm`, unmodified, against the application behind a real server."""

from typing import Any

import orjson
import pytest

from deployments.models.contract.events import Finished, ToolArgumentsDelta, ToolCallStart
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET, USAGE, answer, pieces, said
from tests.contract.http.conftest import serve
from tests.contract.http.python_clients import python, run_tests
from tests.twins.engine import Script

__all__ = ["python"]

ARGUMENTS = '{"city":"Kiel"}'


def call(name: str) -> list[list[Any]]:
    begun = ToolCallStart("tool_call", 0, 0, "call_1", name)
    return [
        [begun],
        [ToolArgumentsDelta("tool_arguments", 0, 0, ARGUMENTS)],
        [Finished("finished", 0, "tool_calls")],
    ]


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def script(request):
    """Do what the user's last message says: call the tool that is offered, fill an object in, or greet."""
    body = orjson.loads(request.body)
    messages = body.get("messages")
    if not messages:
        return answer(request)
    told = text_of([message for message in messages if message["role"] == "user"][-1])
    tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    if told == "call" and messages[-1]["role"] == "tool":
        return Script(pieces(request, said(text_of(messages[-1]))), USAGE)
    if told in ("call", "object") and tools:
        return Script(pieces(request, call(tools[0])), USAGE)
    if told == "object" and body["response_format"]["type"] == "json_schema":
        return Script(pieces(request, said(ARGUMENTS)), USAGE)
    return answer(request)


@pytest.mark.exhaustive
@pytest.mark.parametrize("client", ["langchain", "llama_index", "litellm", "llm", "pydantic_ai"])
async def test_a_python_client_works_unmodified(world, python, client):
    world.chat.script = script
    async with serve(world.app()) as address:
        models = {"API_KEY": SECRET, "MODEL": MODEL, "EMBEDDING_MODEL": EMBEDDING_MODEL}
        await run_tests(python, f"{client}_client.py", BASE_URL=address + "/v1", **models)
