"""Subschemas, where they stand, and the error that refuses one."""

from typing import Any

Place = tuple[str | int, ...]
"""The keys and positions from the root of a schema to one of its parts."""


class SchemaRefused(Exception):
    """A schema has a keyword that answers cannot be held to: where it stands, and why.

    `position` is the schema's number among those of a form.
    """

    def __init__(self, place: Place, why: str, position: int = 0) -> None:
        super().__init__(place, why, position)
        self.place = place
        self.why = why
        self.position = position

    @property
    def sentence(self) -> str:
        """The error message after the name of the field that holds the schema."""
        where = in_words(self.place)
        word = next((str(key) for key in reversed(self.place) if isinstance(key, str)), "")
        return f"'{word}' at '{where}' {self.why}" if word else f"it {self.why}"


def in_words(place: Place) -> str:
    """Return a place as clients read it, such as "properties.a.anyOf[0]"."""
    words = ""
    for key in place:
        words += f"[{key}]" if isinstance(key, int) else f".{key}" if words else key
    return words if len(words) <= 200 else words[:100] + "..." + words[-97:]


class Part:
    """A subschema: from the document, or derived (`is_made`), and then parts may stand in its schema.

    Equal only to itself, as a document creates one part for each place.
    """

    __slots__ = ("is_made", "number", "place", "schema")

    def __init__(self, number: int, schema: Any, place: Place, *, is_made: bool) -> None:
        self.number = number
        self.schema = schema
        self.place = place
        self.is_made = is_made
