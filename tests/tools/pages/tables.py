"""Values as cells of Markdown tables."""

from typing import Any

import yaml


def cell(text: str) -> str:
    """Return a text that ends no cell."""
    return text.replace("|", "\\|")


def plain(value: Any) -> str:
    """Return a default value as YAML writes it in one line."""
    if isinstance(value, dict | list | tuple | frozenset):
        value = value if isinstance(value, dict) else list(value)
        return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1000).strip()
    return str(value).lower() if isinstance(value, bool) else str(value)
