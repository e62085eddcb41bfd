"""A record of the request log, and the protocol of the log."""

from dataclasses import dataclass
from typing import Protocol

CLIENT_CLOSED_REQUEST = 499
"""The status in the record of a client that left before its answer was complete; it is never sent."""


@dataclass(slots=True)  # Not frozen, which would cost 1.5 us more, twice a request.
class RequestRecord:
    """A request in the request log, without its content. `at` is in Unix seconds.

    `batch_id` is the batch of a line, None for a request over HTTP. `service_tier` is the served tier, None for the
    default; `discounted_tokens` of its tokens did not count against limits. `queued_s` is the wait for the first step
    in the engine, None if unknown. `code_sessions` is the number of containers that it began. Costs are in 10^-12 of
    the currency. `param` is the parameter at fault, or the limit that refused the request; it has names of the service
    only, none that the client made up.
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
    param: str | None = None

    @property
    def cost(self) -> int:
        """The whole cost, in 10^-12 of the currency."""
        return self.input_cost + self.cached_cost + self.output_cost


class RequestLog(Protocol):
    """Takes request records."""

    def write_ahead(self, record: RequestRecord) -> None:
        """Save a record that `record` will take in a moment, in case this process dies before; never raises.

        It is called before the last byte of an answer is sent.
        """

    def record(self, record: RequestRecord) -> None:
        """Take a record; never waits and never raises."""
