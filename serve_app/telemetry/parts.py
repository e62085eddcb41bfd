"""Watches the parts that requests need, and exports whether they answer. An ingress replica has one watcher.

Alerts read it: a request that fails says only that something is away, and some parts can be away for long before a
request needs them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from sqlalchemy.exc import DBAPIError

from deployments.state.objects.copies import Backlog, PendingCopies
from deployments.state.objects.pair import PairedStore
from deployments.state.webhooks.queue import DeliveryQueue
from deployments.waiting import Watch
from serve_app.telemetry.series import (
    COPIES_LAG,
    COPIES_OWED,
    MOVED,
    PART_UP,
    WEBHOOKS_OLDEST,
    WEBHOOKS_WAITING,
    Series,
)

logger = logging.getLogger(__name__)

_INTERVAL_S = 10.0
_TIMEOUT_S = 5.0


class Sink(Protocol):
    """Where measurements go."""

    def add(self, series: Series, values: tuple[str, ...], amount: float) -> None:
        """Add to a counter, or set a gauge."""
        ...


class PartsWatcher(Watch):
    """Asks each of `parts` every ten seconds; whatever its question raises, or five seconds, means that it is away.

    `num_moved` returns, by model, how many requests have lost their replica since the start of this process. `pair` are
    the two object stores, where there are two; `webhooks` are the events on their way to endpoints.
    """

    def __init__(
        self,
        parts: Mapping[str, Callable[[], Awaitable[object]]],
        num_moved: Callable[[], Mapping[str, int]],
        sink: Sink,
        pair: PairedStore | None = None,
        webhooks: DeliveryQueue | None = None,
    ) -> None:
        self._parts = parts
        self._num_moved = num_moved
        self._sink = sink
        self._pair = pair
        self._webhooks = webhooks
        self._is_up: dict[str, bool] = {}
        self._reported: dict[str, int] = {}

    async def look(self) -> None:
        """Ask each part once, all at the same time, and export what was found."""
        answers = await asyncio.gather(*map(self._answers, self._parts.values()))
        for part, is_up in zip(self._parts, answers, strict=True):
            self._sink.add(PART_UP, (part,), float(is_up))
            if self._is_up.get(part, True) != is_up:
                logger.log(
                    logging.INFO if is_up else logging.WARNING, "%s %s.", part, "is back" if is_up else "is away"
                )
            self._is_up[part] = is_up
        for model, total in self._num_moved().items():
            if added := total - self._reported.get(model, 0):
                self._sink.add(MOVED, (model,), added)
                self._reported[model] = total

        if self._pair is not None and self._pair.pending is not None:
            await self._show_backlog(self._pair, self._pair.pending)
        if self._webhooks is not None:
            await self._show_webhooks(self._webhooks)

    async def _show_webhooks(self, queue: DeliveryQueue) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                waiting = await queue.waiting()
        except (DBAPIError, TimeoutError):
            return
        self._sink.add(WEBHOOKS_WAITING, (), waiting.num_deliveries)
        self._sink.add(WEBHOOKS_OLDEST, (), waiting.oldest_s)

    async def _show_backlog(self, pair: PairedStore, pending: PendingCopies) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                backlog = await pending.backlog()
        except (DBAPIError, TimeoutError):
            return
        for side in (pair.near, pair.far):
            of_side = backlog.get(side.name, Backlog(0, 0.0))
            self._sink.add(COPIES_OWED, (side.name,), of_side.num_objects)
            self._sink.add(COPIES_LAG, (side.name,), of_side.oldest_s)

    async def _answers(self, ask: Callable[[], Awaitable[object]]) -> bool:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await ask()
        except Exception:
            return False
        return True

    async def _keep(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_INTERVAL_S)
