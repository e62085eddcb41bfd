"""What counts as a right answer of the demo model."""

from dataclasses import replace

import pytest

from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.evaluation import Answer, evaluate, is_right, parse_answer, report
from tests.tools.demo_model.mixture import held_out_dialogues

CALL = ("get_weather", {"city": "Oslo"})


def remembered() -> Dialogue:
    dialogue = Dialogue("memory").turn("My name is Anna.", "Nice to meet you, Anna!")
    dialogue.turn("What is my name?", "Your name is Anna.").needles = ("Anna",)
    return dialogue


def called() -> Dialogue:
    return Dialogue("tools").call("What is the weather in Oslo?", [CALL])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer("Your name is Anna."), True),
        (Answer("You are Anna!"), True),
        (Answer("Your name is Bella."), False),
        (Answer("Your name is Anna.", has_stopped=False), False),
        (Answer("Your name is Anna.", thought="Anna."), False),
        (Answer("Your name is Anna.", calls=(CALL,)), False),
    ],
)
def test_remembered_name_is_right_when_it_is_said_and_the_answer_ends(answer: Answer, expected: bool) -> None:
    assert is_right(remembered(), answer) is expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer("", (CALL,)), True),
        (Answer("", (CALL, CALL)), False),
        (Answer("", (("get_weather", {"city": "Rome"}),)), False),
        (Answer("It is sunny."), False),
    ],
)
def test_call_is_right_when_tool_and_arguments_are(answer: Answer, expected: bool) -> None:
    assert is_right(called(), answer) is expected


def test_thought_is_wanted_where_it_was_asked_for() -> None:
    dialogue = remembered()
    dialogue.thought = "The user told me."
    assert is_right(dialogue, Answer("Your name is Anna.", thought="Anna it was."))
    assert not is_right(dialogue, Answer("Your name is Anna."))
    assert not is_right(dialogue, Answer("Your name is Anna.", thought=" "))


def test_answer_without_needles_is_right_when_it_is_the_same() -> None:
    dialogue = Dialogue("tasks").turn("Reverse abc.", "cba")
    assert is_right(dialogue, Answer("cba"))
    assert not is_right(dialogue, Answer("The answer is cba"))


def test_calls_and_thought_are_read_from_text() -> None:
    text = 'I call it.</think><tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    assert parse_answer(text, is_thinking=True, has_stopped=True) == Answer("", (CALL,), "I call it.")
    assert parse_answer("Oslo.", is_thinking=True, has_stopped=True).thought is None
    assert not parse_answer('<tool_call>\n{"name": ', is_thinking=False, has_stopped=True).has_stopped


def test_every_skill_can_be_answered_right() -> None:
    """The expected answers themselves count as right, and none of them does without its end."""
    for result in evaluate(
        lambda dialogues: (
            Answer(one.messages[-1]["content"] or "", tuple(one.calls()), one.thought) for one in dialogues
        ),
        count=30,
    ):
        assert result.share == 1.0, result.skill
    dialogue = held_out_dialogues("talk", 1)[0]
    answer = Answer(dialogue.messages[-1]["content"])
    assert not is_right(dialogue, replace(answer, has_stopped=False))


def test_report_shows_shares_and_wrong_answers() -> None:
    results = evaluate(lambda dialogues: (Answer("nonsense") for _ in dialogues), count=2, skills=["tasks"])
    assert "| tasks | 2 | 0.0% |" in report(results)
    assert "nonsense" in report(results, shown=1)
