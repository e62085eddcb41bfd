"""Remote MCP servers: tools that others run, reached over streamable HTTP."""
