"""Rows as values: the columns that a dataclass has fields for."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any


def columns_for(kind: type, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row that bear the name of a field of the dataclass `kind`."""
    return {field.name: row[field.name] for field in fields(kind) if field.name in row}
