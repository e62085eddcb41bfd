"""The responses interface: chat with a stored conversation, its event stream, and tools that the service runs."""
