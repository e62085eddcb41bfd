"""Watches what requests need: the parts of the service, and the regions with their database's standbys.

Each ingress replica has one watcher of parts and, with regions, one of regions. Alerts read what they export: a failed
request says only that something is away, and a part can be away for long before a request needs it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from sqlalchemy.exc import DBAPIError

from deployments.limits.messages import TransportDown
from deployments.state.database.connection import Database
from deployments.state.objects.copies import Backlog, PendingCopies
from deployments.state.objects.pair import PairedStore
from deployments.state.regions.register import RegionRegister, standbys
from deployments.state.webhooks.queue import DeliveryQueue
from deployments.waiting import Watch, repeat
from serve_app.telemetry.series import (
    COPIES_LAG,
    COPIES_OWED,
    LIMITS_AWAY,
    LIMITS_ROOM,
    MOVED,
    PART_UP,
    REGION_DRAINED,
    REGION_SEEN,
    STANDBY_LAG,
    STANDBYS,
    WEBHOOKS_OLDEST,
    WEBHOOKS_WAITING,
    Series,
)

logger = logging.getLogger(__name__)

_INTERVAL_S = 10.0
_REGIONS_INTERVAL_S = 2.0
_SIGN_IN_S = 4.0
_TIMEOUT_S = 5.0


class Sink(Protocol):
    """Takes measurements."""

    def add(self, series: Series, values: tuple[str, ...], amount: float) -> None:
        """Add to a counter, or set a gauge."""


class PartsWatcher(Watch):
    """Calls each of `parts` every ten seconds: a part is away if its call raises, or takes longer than five seconds.

    `num_moved` returns, by model, how many requests have lost their replica since this process started. `pair` are the
    object stores, if there are two. `webhooks` is the queue of events for endpoints.
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
        """Ask all parts at once, and export the results."""
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


class RegionWatcher(Watch):
    """Signs the region `name` in every few seconds with the JSON that `facts` returns, and exports all regions' state.

    The replicas of a region share its row: whichever finds it old signs in. `is_drained` is what the database said
    last. `shares` returns what the region lends and borrows of limits, like `RegionCore.shares`; it raises
    TransportDown while the gatekeeper is away.
    """

    def __init__(
        self,
        name: str,
        database: Database,
        facts: Callable[[], Mapping[str, Any]],
        sink: Sink,
        clock: Callable[[], float] = time.time,
        shares: Callable[[], Awaitable[Mapping[str, Any] | None]] | None = None,
    ) -> None:
        self.is_drained = False
        self._name = name
        self._database = database
        self._register = RegionRegister(database, clock)
        self._facts = facts
        self._sink = sink
        self._shares = shares
        self._clock = clock
        self._seen: dict[str, float] = {}
        self._standbys: set[str] = set()

    async def look(self) -> None:
        """Export the state of regions and standbys, and sign in if no replica of this region has lately.

        Raises:
            DBAPIError, TimeoutError: the database does not answer.
        """
        limits = await self._look_at_limits()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found = await self._register.all_regions()
                own = next((region for region in found if region.name == self._name), None)
                self.is_drained = own is not None and own.drained_at is not None
                if own is None or not 0 <= self._clock() - own.seen_at < _SIGN_IN_S:
                    limited = {} if limits is None else {"limits": limits}
                    await self._register.sign_in(self._name, {**self._facts(), **limited})
                    found = await self._register.all_regions()
                following = await standbys(self._database)
        finally:
            for name, seen_at in self._seen.items():  # The ages grow while the database is away, too.
                self._sink.add(REGION_SEEN, (name,), max(0.0, self._clock() - seen_at))
        self._seen = {region.name: region.seen_at for region in found}
        for region in found:
            self._sink.add(REGION_SEEN, (region.name,), max(0.0, self._clock() - region.seen_at))
            self._sink.add(REGION_DRAINED, (region.name,), float(region.drained_at is not None))
        for standby in following:
            self._sink.add(STANDBY_LAG, (standby.name,), standby.lag_s)
        for gone in self._standbys - {standby.name for standby in following}:
            self._sink.add(STANDBY_LAG, (gone,), float("nan"))
        self._standbys = {standby.name for standby in following}
        num_synchronous = sum(standby.is_synchronous for standby in following)
        self._sink.add(STANDBYS, ("synchronous",), float(num_synchronous))
        self._sink.add(STANDBYS, ("asynchronous",), float(len(following) - num_synchronous))

    async def _look_at_limits(self) -> Mapping[str, Any] | None:
        """Export and return the loans between regions; None without any, or while the gatekeeper is away."""
        try:
            shares = None if self._shares is None else await self._shares()
        except TransportDown:
            return None
        if shares is not None:
            for region, other in shares["others"].items():
                self._sink.add(LIMITS_AWAY, (region,), other["away_s"] or 0.0)
            for way in ("lent", "borrowed"):
                for dimension, amount in shares[way].items():
                    self._sink.add(LIMITS_ROOM, (way, dimension), float(amount))
        return shares

    async def _keep(self) -> None:
        await repeat("The register of regions", _REGIONS_INTERVAL_S, self.look, expected=(DBAPIError, TimeoutError))
