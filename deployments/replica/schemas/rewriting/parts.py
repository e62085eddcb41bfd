"""Subschemas."""

from typing import Any

from deployments.replica.schemas.rewriting.refusal import Place


class Part:
    """A subschema: one of the document, or one that was made of others, which may then hold parts as its own.

    Equal only to itself: a document makes one part for each place.
    """

    __slots__ = ("is_made", "number", "place", "schema")

    def __init__(self, number: int, schema: Any, place: Place, *, is_made: bool) -> None:
        self.number = number
        self.schema = schema
        self.place = place
        self.is_made = is_made
