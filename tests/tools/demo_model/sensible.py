"""Whether the demo model's answers to newcomers are sensible: by rules, as there is no one right text."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jsonschema

from tests.tools.demo_model.evaluation import Answer, Asker, Result
from tests.tools.demo_model.newcomers import Newcomer, newcomers

_CANNOT = re.compile(r"\b(cannot|can't|do not know|don't know|too small|no tool)\b", re.IGNORECASE)
_INSTEAD = re.compile(r"\b(ask me|try|i can)\b", re.IGNORECASE)
_MARKUP = re.compile(r"<[|/\w]|\w+\|>")


def is_sensible(newcomer: Newcomer, answer: Answer) -> bool:
    """Return whether the last answer makes sense; none does that holds markup or was cut off."""
    if not answer.has_stopped or answer.thought is not None or _MARKUP.search(answer.text):
        return False
    if answer.calls:
        return [name for name, _ in answer.calls] == [newcomer.calls]
    if newcomer.schema is not None:
        return _keeps_to(newcomer.schema, answer.text)
    return _holds_one(answer.text, newcomer.says) or (newcomer.declines and declines(answer.text))


def declines(text: str) -> bool:
    """Return whether a text says that the model cannot do something, and what to ask instead."""
    return bool(_CANNOT.search(text) and _INSTEAD.search(text))


def _holds_one(text: str, parts: Sequence[str]) -> bool:
    """Return whether one of the parts is there as a whole word, so that 112 does not hold 12."""
    ends = (re.escape(part) + (r"(?!\w)" if part[-1].isalnum() else "") for part in parts)
    return any(re.search(rf"(?<!\w){end}", text, re.IGNORECASE) for end in ends)


def _keeps_to(schema: dict[str, Any], text: str) -> bool:
    try:
        jsonschema.validate(json.loads(text), schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def evaluate_newcomers(ask: Asker) -> list[Result]:
    """Let all newcomers ask, each turn after the model's own answers; return the results of each kind of question."""
    everyone = newcomers()
    said: list[list[Answer]] = [[] for _ in everyone]
    for turn in range(max(len(one.turns) for one in everyone)):
        asking = [index for index, one in enumerate(everyone) if turn < len(one.turns)]
        dialogues = [everyone[index].dialogue([answer.text for answer in said[index]]) for index in asking]
        for index, answer in zip(asking, ask(dialogues), strict=True):
            said[index].append(answer)
    results = {}
    for kind, count in Counter(one.kind for one in everyone).items():
        wrong = [
            (one.dialogue([answer.text for answer in answers[:-1]]), answers[-1])
            for one, answers in zip(everyone, said, strict=True)
            if one.kind == kind and not is_sensible(one, answers[-1])
        ]
        results[kind] = Result(kind, count, count - len(wrong), wrong)
    all_wrong = [pair for result in results.values() for pair in result.wrong]
    return [*results.values(), Result("all", len(everyone), len(everyone) - len(all_wrong), [])]
