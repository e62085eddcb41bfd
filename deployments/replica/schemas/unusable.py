"""What a form is refused with that holds a schema which cannot be kept."""


class Unusable(Exception):
    """A word of a schema that cannot be kept: the schema's position among those of a form, and what is said of it."""

    def __init__(self, position: int, sentence: str) -> None:
        super().__init__(position, sentence)
        self.position = position
        self.sentence = sentence
