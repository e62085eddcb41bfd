"""One question and the model's answer to it, the building block of every dialogue."""

from dataclasses import dataclass

from tests.tools.demo_model.spelling import shorten
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
    """Return a question as people write it: with a word before it, in short forms, without its full stop.

    Names, words and numbers in it stay as they are.
    """
    if draw.held_out:
        return text
    if draw.chance(0.12):
        text = draw.random.choice(_OPENINGS) + text
    text = shorten(draw, text, 0.15)
    if draw.chance(0.25) and text[-1] in ".?!":
        text = text[:-1]
    if draw.chance(0.25) and text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text
