"""The request log's lines, and where they go."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One line of the request log: everything about a request except its content. Times in seconds, `at` Unix.

    `batch_id` names the batch whose line it was, None for a request over HTTP.
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


class RequestLog(Protocol):
    """Where request records go."""

    def record(self, record: RequestRecord) -> None:
        """Keep the record; never waits and never raises."""
        ...
