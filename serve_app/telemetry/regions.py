"""Signs a region in, and watches all regions and the standbys of their database. An ingress replica has one watcher.

Replicas of a region share its row: whichever finds it old signs in, so that many replicas do not wait for each other.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sqlalchemy.exc import DBAPIError

from deployments.limits.messages import TransportDown
from deployments.state.database.connection import Database
from deployments.state.regions.register import RegionRegister
from deployments.state.regions.standbys import standbys
from deployments.waiting import Watch, worth_logging
from serve_app.telemetry.parts import Sink
from serve_app.telemetry.series import LIMITS_AWAY, LIMITS_ROOM, REGION_DRAINED, REGION_SEEN, STANDBY_LAG, STANDBYS

logger = logging.getLogger(__name__)

_INTERVAL_S = 2.0
_SIGN_IN_S = 4.0
_TIMEOUT_S = 5.0


class RegionWatcher(Watch):
    """Signs `name` in every few seconds with what `facts` returns, which is JSON.

    `is_drained` is whether it is drained, as the database said last.

    `shares` returns what the region lends of limits and borrows, as `RegionCore.shares` has it; it raises TransportDown
    while the gatekeeper is away.
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
        """Export what the database says of regions and standbys, and sign in if no replica has lately.

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
            for name, seen_at in self._seen.items():  # Also while the database is away: they grow older.
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
        """Export what is lent and borrowed, and return it; None where there is nothing, or no gatekeeper to say."""
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
        num_failures = 0
        while True:
            try:
                await self.look()
                num_failures = 0
            except (DBAPIError, TimeoutError) as error:
                num_failures += 1
                if worth_logging(num_failures):
                    logger.warning("The register of regions is away: %s", type(error).__name__)
            await asyncio.sleep(_INTERVAL_S)
