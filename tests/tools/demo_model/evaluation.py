"""Asks the model what it never saw, and counts the right answers: of a checkpoint, or of a service that runs."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.tools.demo_model.dialogue import Dialogue
from tests.tools.demo_model.mixture import SKILLS, held_out_dialogues

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model answered. `has_stopped`: it ended by itself; `thought` is None where it did not think."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str | None = None
    has_stopped: bool = True


Asker = Callable[[Sequence[Dialogue]], Iterator[Answer]]


@dataclass(slots=True)
class Result:
    """How many of the asked dialogues of one skill ended right, and some that did not."""

    skill: str
    num_asked: int
    num_right: int
    wrong: list[tuple[Dialogue, Answer]]

    @property
    def share(self) -> float:
        """Return the share of right answers."""
        return self.num_right / self.num_asked


def is_right(dialogue: Dialogue, answer: Answer) -> bool:
    """Return whether an answer is the right last message of a dialogue.

    It must have ended by itself, must have thought where, and only where, that was asked for, and must make
    exactly the expected calls. A text is right when it holds what `needles` names, else when it is the same; JSON
    that the engine held to a schema is, whatever white space it has.
    """
    expected = dialogue.messages[-1]
    if not answer.has_stopped or (answer.thought is not None) != (dialogue.thought is not None):
        return False
    if dialogue.thought is not None and not (answer.thought or "").strip():
        return False
    if list(answer.calls) != dialogue.calls():
        return False
    if dialogue.calls():
        return True
    text = answer.text.strip()
    if dialogue.needles:
        return all(needle.strip() in text for needle in dialogue.needles)
    if dialogue.schema is not None:
        return _is_same_json(text, expected["content"])
    return bool(text == expected["content"])


def _is_same_json(text: str, expected: str) -> bool:
    try:
        return bool(json.loads(text) == json.loads(expected))
    except ValueError:
        return False


def evaluate(ask: Asker, count: int = 100, skills: Sequence[str] = SKILLS, seed: int = 1) -> list[Result]:
    """Ask `count` held-out dialogues of each skill."""
    results = []
    for skill in skills:
        dialogues = held_out_dialogues(skill, count, seed)
        wrong = [(dialogue, said) for dialogue, said in zip(dialogues, ask(dialogues), strict=True)
                 if not is_right(dialogue, said)]  # fmt: skip
        results.append(Result(skill, count, count - len(wrong), wrong))
    return results


def parse_answer(text: str, *, is_thinking: bool, has_stopped: bool) -> Answer:
    """Return what raw text of the model says, read as vLLM's `qwen3` and `hermes` parsers read it."""
    thought = None
    if is_thinking:
        before, end, text = text.partition("</think>")
        thought = before.strip() if end else None
    elif "<think>" in text:
        thought = text
    text, *rest = text.split("<tool_call>")
    calls: list[Call] = []
    for part in rest:
        try:
            call = json.loads(part.partition("</tool_call>")[0])
            calls.append((call["name"], call["arguments"]))
        except (ValueError, KeyError, TypeError):
            has_stopped = False  # A call that nobody can read is no answer.
    return Answer(text.strip(), tuple(calls), thought, has_stopped)


def report(results: Sequence[Result], shown: int = 0) -> str:
    """Return the results as a table, with a few of the wrong answers."""
    lines = ["| skill | asked | right |", "|---|---|---|"]
    lines += [f"| {one.skill} | {one.num_asked} | {one.share:.1%} |" for one in results]
    for result in results:
        for dialogue, answer in result.wrong[:shown]:
            asked = dialogue.messages[-2]["content"]
            expected = dialogue.calls() or dialogue.messages[-1]["content"]
            lines.append(f"\n{result.skill}: {asked!r}\n  expected {expected!r}\n  answered {answer}")
    return "\n".join(lines)
