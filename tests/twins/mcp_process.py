"""An MCP server in a process of its own, on the port that is its argument, for tests against the whole service."""

import sys
from typing import Literal

from mcp.server.mcpserver import MCPServer

server = MCPServer("warehouse", log_level="CRITICAL")


@server.tool(description="Says how many nails are in a room.")
def count_nails(room: Literal["north", "south"]) -> str:
    return f"There are 7 nails in the {room} room."


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
