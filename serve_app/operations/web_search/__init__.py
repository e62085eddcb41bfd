"""The web search as a tool of responses: searches, opens pages, finds text in them, and cites them."""
