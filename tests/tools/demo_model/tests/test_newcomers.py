"""What newcomers ask is never trained on, and their answers are judged by rules that nonsense fails."""

import itertools

import pytest

from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.evaluation import Answer
from tests.tools.demo_model.mixture import train_dialogues
from tests.tools.demo_model.newcomers import Newcomer, asks_what_newcomers_do, newcomers, normalized
from tests.tools.demo_model.sensible import evaluate_newcomers, is_sensible

DECLINES = "I cannot do that, but you can ask me about Manta."
SUM = Newcomer("sums", ("7+5=",), ("12",))
POEM = Newcomer("writing", ("write a poem",), declines=True)
WEATHER = Newcomer("tools", ("hows the weather in Ghent",), calls="get_weather")
RATING = Newcomer("json", ("rate it",), schema={"type": "object", "required": ["rating"]})
CALL = ("get_weather", {"location": "Ghent"})


def test_there_are_enough_and_none_is_asked_twice() -> None:
    asked = [(tuple(map(normalized, one.turns)), tuple(map(str, one.tools))) for one in newcomers()]
    assert len(set(asked)) >= 300
    # "?" and a picture hold no letters, so that they are the same here.
    assert len(asked) - len(set(asked)) <= 1


def test_each_can_be_answered() -> None:
    assert all(one.says or one.declines or one.calls or one.schema for one in newcomers())


def test_training_never_asks_what_newcomers_do() -> None:
    assert not any(asks_what_newcomers_do(one) for one in itertools.islice(train_dialogues(seed=5), 3000))


@pytest.mark.parametrize("asked", ["write a poem", "Write a poem!", "WRITE A POEM ...", "7 + 5 ="])
def test_same_question_is_known_in_any_spelling(asked: str) -> None:
    assert asks_what_newcomers_do(Dialogue("talk").turn("My name is Anna.", "Hello!").turn(asked, ""))
    assert not asks_what_newcomers_do(Dialogue("talk").turn(asked + " of mine", ""))


@pytest.mark.parametrize(
    ("newcomer", "answer", "expected"),
    [
        (SUM, Answer("12"), True),
        (SUM, Answer("It is 12."), True),
        (SUM, Answer("112"), False),
        (SUM, Answer(DECLINES), False),
        (SUM, Answer("12", has_stopped=False), False),
        (SUM, Answer("12 <tool_call> 12"), False),
        (SUM, Answer("<|im_start|>12"), False),
        (SUM, Answer("12", (CALL,)), False),
        (POEM, Answer(DECLINES), True),
        (POEM, Answer("I do not know that."), False),
        (POEM, Answer("A duck says quack."), False),
        (POEM, Answer(""), False),
        (WEATHER, Answer("", (CALL,)), True),
        (WEATHER, Answer("", (CALL, CALL)), False),
        (WEATHER, Answer("", (("send_email", {}),)), False),
        (WEATHER, Answer("It rains."), False),
        (RATING, Answer('{"rating": 3}'), True),
        (RATING, Answer('{"rate": 3}'), False),
        (RATING, Answer('{"rating": 3'), False),
    ],
)
def test_answer_is_sensible_by_rule(newcomer: Newcomer, answer: Answer, expected: bool) -> None:
    assert is_sensible(newcomer, answer) is expected


def test_later_turns_follow_the_models_own_answers() -> None:
    asked: list[Dialogue] = []

    def ask(dialogues: list[Dialogue]) -> list[Answer]:
        asked.extend(dialogues)
        return [Answer(f"nonsense{len(one.messages)}") for one in dialogues]

    results = evaluate_newcomers(ask)
    assert results[-1].num_asked == len(newcomers())
    assert results[-1].num_right == sum(result.num_right for result in results[:-1]) == 0
    longest = max(asked, key=lambda one: len(one.messages))
    assert [m["content"] for m in longest.messages if m["role"] == "assistant"][:2] == ["nonsense2", "nonsense4"]
