"""Responses: a chat with a stored conversation, a stream of events, and tools that the service runs."""
