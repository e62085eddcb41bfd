"""Counts how often a response used the service's tools, from its items: those that a resumed response has kept too."""

from collections.abc import Iterable, Sequence

from deployments.models.contract.engine import ToolUse
from serve_app.operations.responses.events.writer import Item


def count_tool_use(items: Sequence[Item], before: Iterable[Item], tools: Iterable[object] | None) -> ToolUse:
    """Return the use that `items` show.

    A container that items `before` used, or that one of the request's `tools` names, was not begun by this response.
    """
    kinds = [item["type"] for item in items]
    named = {container for tool in tools or () if isinstance(container := getattr(tool, "container", None), str)}
    begun = _containers(items) - _containers(before) - named
    return ToolUse(kinds.count("file_search_call"), kinds.count("web_search_call"), len(begun))


def _containers(items: Iterable[Item]) -> set[str]:
    return {item["container_id"] for item in items if item["type"] == "code_interpreter_call"}
