"""How often tools were used, counted from the items of a response."""

from types import SimpleNamespace

from deployments.models.contract.engine import ToolUse
from serve_app.operations.responses.run.tool_calls import count_tool_use


def code(container: str) -> dict[str, str]:
    return {"type": "code_interpreter_call", "container_id": container}


def test_calls_are_counted_and_containers_where_they_were_begun() -> None:
    search = {"type": "file_search_call"}
    items = [search, {"type": "message"}, {"type": "web_search_call"}, search, *map(code, "aabcd")]
    tools = [SimpleNamespace(container="b"), SimpleNamespace(container=SimpleNamespace(type="auto")), object()]
    assert count_tool_use(items, [code("c"), {"type": "message"}], tools) == ToolUse(2, 1, 2)
    assert count_tool_use([], [code("c")], None) == ToolUse(0, 0, 0)
