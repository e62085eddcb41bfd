"""The tokens of a streamed answer, so that another engine can continue it after one has died.

A model replica sends a note with each piece of a stream: the tokens of the piece. `pack_step` creates it for each
choice in each step of the engine. The reader keeps the notes as they are, and parses them only when an engine has died.
A note is unsigned 32-bit numbers, little-endian: the choice, the number of tokens, the tokens.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_PROMPT: Final = 0xFFFFFFFF  # In the place of a choice: the numbers are those of `pack_prompt`.
_ONE = struct.Struct("<III")


class Step(NamedTuple):
    """Tokens that one step of an engine added to a choice."""

    choice: int
    token_ids: list[int]


class PromptTokens(NamedTuple):
    """The number of tokens of a prompt, and of those that were cached."""

    num_tokens: int
    num_cached: int


def pack_step(choice: int, token_ids: Sequence[int]) -> bytes:
    """Return the note of a piece with these tokens."""
    if len(token_ids) == 1:
        return _ONE.pack(choice, 1, token_ids[0])
    return struct.pack(f"<II{len(token_ids)}I", choice, len(token_ids), *token_ids)


def pack_prompt(prompt: int, tokens: PromptTokens) -> bytes:
    """Return the note about a prompt of the request, by its number; it precedes the prompt's first step."""
    return pack_step(_PROMPT, (prompt, *tokens))


def unpack(notes: bytes | bytearray) -> list[int]:
    """Return the numbers of notes, for a request's header."""
    return list(struct.unpack(f"<{len(notes) // 4}I", notes))


class Written:
    """The parsed notes of one answer: steps in order, prompts by number."""

    def __init__(self, numbers: Sequence[int]) -> None:
        """Parse the numbers of the notes; the first note about a prompt counts."""
        self.steps: list[Step] = []
        self.prompts: dict[int, PromptTokens] = {}
        for choice, values in _split(numbers):
            if choice == _PROMPT:
                self.prompts.setdefault(values[0], PromptTokens(*values[1:]))
            else:
                self.steps.append(Step(choice, values))

    def groups_of(self, choice: int) -> list[list[int]]:
        """Return the tokens of a choice, a list for each step."""
        return [step.token_ids for step in self.steps if step.choice == choice]

    def groups(self, first: int, num_choices: int) -> dict[int, list[list[int]]]:
        """Return the tokens, a list for each step, of each of `num_choices` choices from `first` on that has any."""
        of_each = {number: self.groups_of(first + number) for number in range(num_choices)}
        return {number: groups for number, groups in of_each.items() if groups}

    @property
    def num_tokens(self) -> int:
        """How many tokens all choices have together."""
        return sum(len(step.token_ids) for step in self.steps)


def _split(numbers: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    position = 0
    while position < len(numbers):
        end = position + 2 + numbers[position + 1]
        yield numbers[position], list(numbers[position + 2 : end])
        position = end
