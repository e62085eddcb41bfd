"""The bodies of the responses interface: requests, items, and the tools that they may name."""
