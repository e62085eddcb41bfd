"""Usage and the request log."""
