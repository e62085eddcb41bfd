"""Requests to addresses from clients, models and pages: the one way out, to the public internet only."""
