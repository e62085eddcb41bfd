"""What a schema is refused with."""

Place = tuple[str | int, ...]
"""The keys and positions that lead from the root of a schema to a part of it."""


class SchemaRefused(Exception):
    """A word of a schema that answers cannot be held to, where it stands, and what is wrong with it."""

    def __init__(self, place: Place, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    @property
    def sentence(self) -> str:
        """The refusal without the field that holds the schema."""
        where = in_words(self.place)
        word = next((str(key) for key in reversed(self.place) if isinstance(key, str)), "")
        return f"'{word}' at '{where}' {self.why}" if word else f"it {self.why}"


def in_words(place: Place) -> str:
    """Return a place as clients read it, such as "properties.a.anyOf[0]"."""
    words = ""
    for key in place:
        words += f"[{key}]" if isinstance(key, int) else f".{key}" if words else key
    return words if len(words) <= 200 else words[:100] + "..." + words[-97:]
