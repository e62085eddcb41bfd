"""The tools of a remote server, as they are kept with a response."""

from deployments.tools.mcp.messages import ListedTool
from serve_app.operations.mcp import McpInUse
from serve_app.operations.responses.tools.contract import ToolContext
from serve_app.schemas.responses.mcp import McpTool
from tests.twins.keys import principal_of_key

WHO = principal_of_key(account="acct_1")


class Session:
    """A session with a server that has much to say of its tool."""

    async def list_tools(self) -> list[ListedTool]:
        return [ListedTool("stock", "x" * 1_000_000, {"type": "object"}, {"title": "y" * 1_000_000})]


async def test_no_more_is_kept_of_what_a_server_says_than_a_model_would_read():
    told = McpTool(type="mcp", server_label="store", server_url="https://store.example/mcp")
    used = McpInUse(told, Session(), ToolContext(WHO, ()), 8)  # type: ignore[arg-type]
    item = used.begin_list()
    assert item is not None
    answer = await used.list_functions(item, lambda kind, **fields: None)
    (tool,) = answer.item["tools"]
    assert (len(tool["description"]), len(tool["annotations"]["title"])) == (4096, 4096)
    assert tool["annotations"]["read_only"] is False
