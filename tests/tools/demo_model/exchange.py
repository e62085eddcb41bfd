"""One question and the model's answer to it, the building block of every dialogue."""

from dataclasses import dataclass

from tests.tools.demo_model.words import Draw


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, its answer, and what the model thinks before it where it is asked to think.

    An answer is right when it holds every text of `needles`, or, without any, when it is the same.
    """

    question: str
    answer: str
    thought: str
    needles: tuple[str, ...] = ()


_OPENINGS = ("Please: ", "OK. ", "Now: ", "Thanks. ", "One more thing. ", "Hey, ", "So, ", "Well, ")


def say(draw: Draw, text: str) -> str:
    """Return a question as people write it: with a word before it, without its full stop, in small letters."""
    if draw.held_out:
        return text
    if draw.chance(0.12):
        text = draw.random.choice(_OPENINGS) + text
    if draw.chance(0.1) and text[-1] in ".?!":
        text = text[:-1]
    if draw.chance(0.1) and text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text
