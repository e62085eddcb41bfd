"""What is under way between the gatekeepers of two regions, as each of them knows it. `RegionCore` keeps both."""

import itertools

from deployments.limits.regions.messages import LoanReply, LoanRequest

INTERVAL_S = 0.1
"""Requests to a region begin at least so far apart."""
_LATE_S = 0.4
"""A region that has not answered for so long gets no request to wait for it."""


class Exchange:
    """What is under way between this region and another, which is away since `away_since`, None while it answers.

    `sent_at` is when the request under way, or the last one, was first sent.
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
        """Return the seconds until what is wanted now may be here; None if it is not known to come."""
        if self.away_since is not None:
            return None
        if self.trying_since is None:
            return max(0.0, self.sent_at + INTERVAL_S - now) + self.round_trip_s + 0.01
        if now - self.trying_since >= _LATE_S:
            return None
        return max(0.0, self.trying_since + self.round_trip_s - now) + 0.01


class Borrower:
    """Another region's process that borrows here, and the reply to its last request."""

    def __init__(self, serial: int = 0) -> None:
        self.serial = serial
        self.reply: LoanReply | None = None
