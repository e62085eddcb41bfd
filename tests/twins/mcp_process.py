"""An MCP server in a process of its own, on the port that is its argument, for tests against the whole service."""

import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("shop", log_level="CRITICAL")


@server.tool(description="Get the price of a product.")
def get_price(product: str) -> str:
    return "17 euros" if product else "nothing"


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
