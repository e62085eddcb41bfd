"""The web search as a tool within responses: searching, opening pages, finding in them, citing them."""
