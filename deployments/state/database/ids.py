"""Ids as callers give them, made fit for a query."""


def clean_id(text: str) -> str:
    """Return a caller's id as a database takes it: without NUL, and valid UTF-8."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
