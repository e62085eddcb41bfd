"""Anthropic's Messages interface over the chat operation: a dialect of it, with its limits, policies and usage."""
