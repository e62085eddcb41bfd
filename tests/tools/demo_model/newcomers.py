"""What newcomers ask in their first minutes, as they type it; it is never trained on.

The questions stand in `newcomers.yaml`. They were written before the training data was widened for them, and the
training leaves out whatever differs from them in nothing but capitals, blanks and marks.
"""

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.tools.demo_model.dialogue import Dialogue

_QUESTIONS = Path(__file__).with_name("newcomers.yaml")


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What a user asks in one or more turns, and which last answers make sense.

    An answer does when it holds one of `says`, keeps to `schema`, or makes one call, of the tool `calls`. It may also
    say that the model cannot, and what to ask instead, where `declines` is set.
    """

    kind: str
    turns: tuple[str, ...]
    says: tuple[str, ...] = ()
    declines: bool = False
    system: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    calls: str | None = None
    schema: dict[str, Any] | None = None

    def dialogue(self, answers: Sequence[str]) -> Dialogue:
        """Return the dialogue up to the question that follows these answers."""
        dialogue = Dialogue(self.kind, tools=list(self.tools))
        if self.system is not None:
            dialogue.system(self.system)
        for question, answer in zip(self.turns, (*answers, ""), strict=False):
            dialogue.turn(question, answer)
        is_last = len(answers) == len(self.turns) - 1
        dialogue.schema = self.schema if is_last else None
        return dialogue


@functools.cache
def newcomers() -> tuple[Newcomer, ...]:
    """Return all of them."""
    kinds = yaml.safe_load(_QUESTIONS.read_text(encoding="utf-8"))
    tools = {
        name: {"type": "function", "function": {"name": name, **definition}}
        for name, definition in kinds.pop("definitions").items()
    }
    return tuple(_read(kind, entry, tools) for kind, entries in kinds.items() for entry in entries)


def _read(kind: str, entry: str | dict[str, Any], tools: dict[str, dict[str, Any]]) -> Newcomer:
    if isinstance(entry, str):
        return Newcomer(kind, (entry,), declines=True)
    asked, says, offered = entry.pop("ask"), entry.pop("says", ()), entry.pop("tools", ())
    turns = (asked,) if isinstance(asked, str) else tuple(asked)
    return Newcomer(kind, turns, tuple(says), tools=tuple(tools[name] for name in offered), **entry)


def normalized(text: str) -> str:
    """Return what two ways to write the same question share: letters in lower case, digits and signs of sums."""
    kept = (letter for letter in unicodedata.normalize("NFKC", text).casefold() if letter.isalnum() or letter in "+-*/")
    return "".join(kept)


@functools.cache
def _held_out() -> frozenset[str]:
    return frozenset(normalized(turn) for one in newcomers() for turn in one.turns)


def asks_what_newcomers_do(dialogue: Dialogue) -> bool:
    """Return whether a dialogue has a question of newcomers: it cannot be trained on."""
    asked = (message["content"] for message in dialogue.messages if message["role"] == "user")
    return any(normalized(question) in _held_out() for question in asked)
