"""State that outlives a request: API keys, limits, usage, and the database beneath them."""
