"""Values as cells of Markdown tables."""

from typing import Any


def cell(text: str) -> str:
    """Return a text that ends no cell."""
    return text.replace("|", "\\|")


def plain(value: Any) -> Any:
    """Return a default value as YAML writes it."""
    if isinstance(value, tuple | frozenset):
        return list(value)
    return str(value).lower() if isinstance(value, bool) else value
