"""Asks of requests that wait for the next sync, and the decisions that they wait for. `SyncLoop` has them."""

import asyncio
from typing import NamedTuple

from deployments.limits.client.leases import KeyLeases
from deployments.limits.contract import Decision
from deployments.limits.messages import Ask, Crossing


class TimedDecision(NamedTuple):
    """A decision, valid until `until` on this process's clock."""

    decision: Decision | Crossing
    until: float = float("inf")


class PendingAsk(NamedTuple):
    """An ask that waits for a sync."""

    state: KeyLeases
    ask: Ask
    answer: asyncio.Future[TimedDecision]

    def decide(self, decision: Decision | Crossing, until: float = float("inf")) -> None:
        """Give the request its decision, if it still waits."""
        if not self.answer.done():
            self.answer.set_result(TimedDecision(decision, until))
