"""Remote MCP servers as a tool within responses."""
