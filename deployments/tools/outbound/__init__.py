"""Requests to addresses that callers, models and pages name: the one way out, to the public internet only."""
