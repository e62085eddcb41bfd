"""How people type changes the letters of a question, and never what an answer copies from it."""

import pytest

from tests.tools.demo_model import memory, tasks
from tests.tools.demo_model.spelling import in_words, slip, typed
from tests.tools.demo_model.words import Draw


def test_one_question_is_typed_in_many_ways() -> None:
    draw = Draw(1, held_out=False)
    written = {typed(draw, "What is Manta?") for _ in range(500)}
    assert {"What is Manta?", "what is manta", "whats manta", "what's manta?"} <= written
    assert len(written) > 50


def test_what_is_held_out_is_not_changed() -> None:
    draw = Draw(1, held_out=True)
    assert {typed(draw, "What is Manta?") for _ in range(50)} == {"What is Manta?"}


@pytest.mark.parametrize("text", ["question", "a question", "ab", ""])
def test_slip_changes_one_letter_at_most(text: str) -> None:
    for seed in range(50):
        slipped = slip(Draw(seed, held_out=False), text)
        assert abs(len(slipped) - len(text)) <= 1
        assert slipped[:1] == text[:1]


def test_numbers_have_words_up_to_twenty() -> None:
    assert [in_words(number) for number in (0, 13, 20, 21)] == ["zero", "thirteen", "twenty", "21"]


def test_names_stay_as_they_were_said() -> None:
    draw = Draw(1, held_out=False)
    for _ in range(200):
        told, *_, asked = memory.remembered(draw, 1, tasks.task, 0)
        assert all(needle in told.question for needle in asked.needles)


def test_sums_are_right_in_every_spelling() -> None:
    draw = Draw(1, held_out=False)
    values = {in_words(number): number for number in range(21)} | {str(number): number for number in range(100)}
    for _ in range(300):
        question, result = tasks.small_sum(draw)
        spaced = "".join(letter if letter.isalnum() else f" {letter} " for letter in question.lower())
        a, b = (values[word] for word in spaced.split() if word in values)
        assert result in (a + b, abs(a - b))
