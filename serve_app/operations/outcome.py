"""What an operation returns: before it runs what a request may cost, then an answer that has not begun yet."""

from dataclasses import dataclass

from deployments.models.contract.engine import EngineStream


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request may take, in tokens, before it has run.

    `completion_tokens` is the bound that the caller set, over all choices, None where the caller set none;
    `max_completion_tokens` is what the model could generate at all, 0 for one that generates nothing.
    """

    model: str
    prompt_tokens: int
    completion_tokens: int | None
    max_completion_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one request. Nothing has run yet: iterating `stream` starts it, closing it ends it.

    `is_stream` says whether its pieces are server-sent events or parts of one JSON body.
    """

    stream: EngineStream
    is_stream: bool
