"""The values that an operation returns: the cost of a request before it runs, then an answer that has not begun."""

from dataclasses import dataclass

from deployments.models.contract.engine import EngineStream


@dataclass(frozen=True, slots=True)
class Cost:
    """The most that a request may take, in tokens, before it has run.

    `completion_tokens` is the client's own bound, over all choices, None where it set none;
    `max_completion_tokens` is what the model could generate at all, 0 for one that generates nothing. `cut_tokens` are
    read too, and cut off before the model: they count beside what it reports.
    """

    model: str
    prompt_tokens: int
    completion_tokens: int | None
    max_completion_tokens: int
    cut_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to one request. Nothing has run yet: iterating `stream` starts it, closing it ends it.

    `is_stream` says whether its pieces are server-sent events or parts of one JSON body.
    """

    stream: EngineStream
    is_stream: bool
