"""The events of an engine while it generates, between vLLM's outputs and the rendered bytes.

Events are tuples, which are cheap; over a channel they travel as JSON arrays of the same shape, with the kind first.
`choice` counts the completions of one request (parameter `n`) from 0.
"""

from typing import Any, Literal, NamedTuple

FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]


class TextDelta(NamedTuple):
    """More of a choice's text."""

    kind: Literal["text"]
    choice: int
    text: str


class ReasoningDelta(NamedTuple):
    """More of the model's reasoning before its answer."""

    kind: Literal["reasoning"]
    choice: int
    text: str


class ToolCallStart(NamedTuple):
    """A tool call begins; `call` counts the calls of one choice from 0.

    The arguments of a custom tool are plain text, those of a function JSON.
    """

    kind: Literal["tool_call"]
    choice: int
    call: int
    id: str
    name: str
    is_custom: bool = False


class ToolArgumentsDelta(NamedTuple):
    """More of a tool call's arguments."""

    kind: Literal["tool_arguments"]
    choice: int
    call: int
    text: str


class Logprobs(NamedTuple):
    """Log probabilities of the tokens of the preceding delta, as OpenAI's list."""

    kind: Literal["logprobs"]
    choice: int
    content: list[dict[str, Any]]


class TokenIds(NamedTuple):
    """The tokens of the preceding deltas, for a client that asks for them."""

    kind: Literal["token_ids"]
    choice: int
    token_ids: list[int]


class Finished(NamedTuple):
    """A choice has ended; `stop` is the client's stop text that ended it, if one did."""

    kind: Literal["finished"]
    choice: int
    reason: FinishReason
    stop: str | None = None


Event = TextDelta | ReasoningDelta | ToolCallStart | ToolArgumentsDelta | Logprobs | TokenIds | Finished


EVENT_TYPES: dict[str, type[Event]] = {
    "text": TextDelta,
    "reasoning": ReasoningDelta,
    "tool_call": ToolCallStart,
    "tool_arguments": ToolArgumentsDelta,
    "logprobs": Logprobs,
    "token_ids": TokenIds,
    "finished": Finished,
}
