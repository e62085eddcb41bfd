"""Tools as answers have them."""

from collections.abc import Iterable

from serve_app.operations.responses.events.writer import Item
from serve_app.schemas.json_schema import check_json_schema
from serve_app.schemas.responses.built_in_tool import BuiltInTool
from serve_app.schemas.responses.functions import ClientBuiltIn, ClientFunction, CustomTool, FunctionTool, NamespaceTool
from serve_app.schemas.responses.tools import Tool


def tool_to_wire(tool: Tool) -> Item:
    """Return a tool as the response that has it echoes it."""
    match tool:
        case NamespaceTool():
            functions = [tool_to_wire(function) for function in tool.tools]
            group = {"type": tool.type, "name": tool.name, "description": tool.description, "tools": functions}
            return _with_defer(group, tool)
        case FunctionTool():
            function = {
                "type": tool.type,
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": is_strict(tool),
            }
            return _with_defer(function, tool)
        case CustomTool():
            wanted = tool.format.model_dump() if tool.format is not None else {"type": "text"}
            custom = {"type": tool.type, "name": tool.name, "description": tool.description, "format": wanted}
            return _with_defer(custom, tool)
        case ClientBuiltIn() | BuiltInTool():
            return tool.to_wire()
    raise TypeError(tool.type)


def _with_defer(item: Item, tool: FunctionTool | CustomTool | NamespaceTool) -> Item:
    return item if tool.defer_loading is None else {**item, "defer_loading": tool.defer_loading}


def functions_to_wire(functions: Iterable[ClientFunction]) -> list[Item]:
    """Return functions as tools: those of a namespace together, in a namespace that has no others."""
    tools: dict[str, Item] = {}
    for one in functions:
        if one.namespace is None:
            tools[f"function {one.called}"] = tool_to_wire(one.tool)
            continue
        group = tool_to_wire(one.namespace.model_copy(update={"tools": []}))
        tools.setdefault(f"namespace {one.namespace.name}", group)["tools"].append(tool_to_wire(one.tool))
    return list(tools.values())


def is_strict(tool: FunctionTool) -> bool:
    """Return whether a function is strict: unless the client says otherwise, it is if its schema allows it."""
    if tool.strict is not None or tool.parameters is None:
        return bool(tool.strict)
    try:
        check_json_schema(tool.parameters, "", strict=True)
    except Exception:  # The schema is within bounds, so it is only not strict.
        return False
    return True
