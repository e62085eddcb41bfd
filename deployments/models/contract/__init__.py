"""Requests to an engine and its answers: all that operations know of a model."""
