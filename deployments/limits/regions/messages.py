"""The messages between the gatekeepers of two regions, and the state of their exchange.

A request carries all news of a region: asks for quota loans, unused room of earlier loans, and the usage of its keys.
The lender charges a loan in its own share, at a moment of its own clock after the loan's end. Clocks are never
compared: a loan's validity is a duration.
"""

import itertools
from typing import NamedTuple

import msgspec

from deployments.limits.messages import KeyUsage, Posting

MAX_BYTES = 1024 * 1024
"""The max length of a message: it has at most `MAX_ASKS` asks, and as many of everything else."""
MAX_ASKS = 2_000
INTERVAL_S = 0.1
"""Requests to a region begin at least this far apart."""
_LATE_S = 0.4
"""No request waits for a region that has not answered for this long."""


class LoanAsk(NamedTuple):
    """An ask for a loan of up to this much room of a key."""

    key_id: str
    requests: int
    tokens: int


class LoanRequest(NamedTuple):
    """A request from one region to another.

    `regions` are the names of all regions, as the borrower knows them. `borrower` is its name and a random word for
    its process, `lender` the random word of the lender's process in its last reply. A request counts once for each
    `serial`, even if it is repeated. Loans can be used for `valid_s` seconds after the request is sent. `refunds` name
    the `at` of loans. A sender that has lost its account asks with `replay_after` for its loans with a later `at`.
    """

    regions: list[str]
    region: str
    borrower: str
    lender: str
    serial: int
    valid_s: float
    asks: list[LoanAsk]
    refunds: list[Posting]
    usage: dict[str, KeyUsage]
    replay_after: float | None = None


class LoanGrant(NamedTuple):
    """The answer to an ask: the requests and tokens lent, perhaps none, charged at `at` on the lender's clock.

    If they are less than the ask, the rest fits after `wait_..._s` seconds if nothing else is charged; else 0.
    """

    key_id: str
    at: float
    requests: int
    tokens: int
    wait_requests_s: float
    wait_tokens_s: float


class LoanReply(NamedTuple):
    """The lender's reply.

    `returned` is room that the lender had borrowed from the asking region and gives back. `replayed` are the loans for
    which `replay_after` asked, less refunds. If `is_stale`, the request named another process of the lender, and
    nothing of it was applied. `problem` is the reason why the two cannot exchange loans at all.
    """

    lender: str
    lent: list[LoanGrant]
    returned: list[Posting]
    replayed: list[Posting]
    is_stale: bool = False
    problem: str | None = None


class Exchange:
    """The exchange with another region, which is away since `away_since`, None while it answers.

    `sent_at` is when the unanswered request, or the last one, was first sent.
    """

    def __init__(self, now: float) -> None:
        self.lender = ""
        self.serials = itertools.count(1)
        self.unanswered: LoanRequest | None = None
        self.is_refused = False
        self.sent_at = now - INTERVAL_S
        self.trying_since: float | None = None
        self.round_trip_s = 0.2
        self.away_since: float | None = now
        self.replay_after: float | None = None

    def answer_in_s(self, now: float) -> float | None:
        """Return the seconds until a loan wanted now may arrive; None if the region does not answer."""
        if self.away_since is not None:
            return None
        if self.trying_since is None:
            return max(0.0, self.sent_at + INTERVAL_S - now) + self.round_trip_s + 0.01
        if now - self.trying_since >= _LATE_S:
            return None
        return max(0.0, self.trying_since + self.round_trip_s - now) + 0.01


class Borrower:
    """A process of another region that borrows here, and the reply to its last request."""

    def __init__(self, serial: int = 0) -> None:
        self.serial = serial
        self.reply: LoanReply | None = None


def render(message: LoanRequest | LoanReply) -> bytes:
    """Return a message as bytes."""
    return msgspec.json.encode(message)


def parse_request(rendered: bytes) -> LoanRequest:
    """Return the request that was rendered.

    Raises:
        ValueError: it is no request.
    """
    return msgspec.json.decode(rendered, type=LoanRequest)


def parse_reply(rendered: bytes) -> LoanReply:
    """Return the reply that was rendered.

    Raises:
        ValueError: it is no reply.
    """
    return msgspec.json.decode(rendered, type=LoanReply)
