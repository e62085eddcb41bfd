"""One response on its way: generation, tool calls, generation again, and the answer to the client."""
