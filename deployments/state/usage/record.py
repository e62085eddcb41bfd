"""A line of the request log, and the protocol of what takes it."""

from dataclasses import dataclass
from typing import Protocol

CLIENT_CLOSED_REQUEST = 499
"""The status that records show for a client that left before its answer was complete; never sent to anyone."""


@dataclass(slots=True)  # Not frozen: a frozen one takes a microsecond and a half more to make, twice a request.
class RequestRecord:
    """One line of the request log: a request without its content. `at` is in Unix seconds.

    `batch_id` is the batch that the request was a line of, None for a request over HTTP. `service_tier` is the one
    that was served, None for the usual one; `discounted_tokens` of its tokens did not count against limits.
    `queued_s` is how long the request waited for its first step in the engine, None where that is not known.
    `code_sessions` are the containers that it began. Costs are in 10^-12 of the currency.
    """

    request_id: str
    at: float
    key_id: str | None
    account: str | None
    tier: str | None
    method: str
    route: str
    model: str | None
    status: int
    code: str | None
    stream: bool
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ttft_s: float | None
    total_s: float
    batch_id: str | None = None
    service_tier: str | None = None
    discounted_tokens: int = 0
    queued_s: float | None = None
    file_search_calls: int = 0
    web_search_calls: int = 0
    code_sessions: int = 0
    input_cost: int = 0
    cached_cost: int = 0
    output_cost: int = 0

    @property
    def cost(self) -> int:
        """The whole cost, in 10^-12 of the currency."""
        return self.input_cost + self.cached_cost + self.output_cost


class RequestLog(Protocol):
    """Takes request records."""

    def write_ahead(self, record: RequestRecord) -> None:
        """Take down a record that comes in a moment, in case this process dies before; never raises.

        Called before the last byte of an answer is sent.
        """
        ...

    def record(self, record: RequestRecord) -> None:
        """Take a record; never waits and never raises."""
        ...
