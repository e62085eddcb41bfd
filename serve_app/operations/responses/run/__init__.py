"""Runs a response: generation, tool calls, generation again, and the answer to the client."""
