"""A reserve of the local disks that hold state: below it clients store nothing, so that keys and limits go on."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from sqlalchemy.engine import make_url

from deployments.state.config import ResolvedState
from deployments.state.objects.store import StoreFull

logger = logging.getLogger(__name__)

GIB = 1024 * 1024 * 1024
_PART = 20
_LOOK_S = 1.0


class ReserveReached(StoreFull):
    """A disk that holds state has no more free than its reserve."""


class Space(NamedTuple):
    """What a disk has, and what of it the service may still write, in bytes."""

    total: int
    free: int


def look_at(place: Path) -> Space:
    """Return the space of the disk that a directory is on.

    Raises:
        OSError: it cannot be told.
    """
    found = os.statvfs(place)
    return Space(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)


class DiskReserve:
    """The reserve of the disks under some directories; it looks at them once a second at most.

    `reserve_bytes` is what each keeps free; None is a twentieth of the disk, and a gibibyte at most.
    """

    def __init__(
        self,
        places: Sequence[Path] = (),
        reserve_bytes: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._looked_at = float("-inf")
        self._left = float("inf")

    async def check(self, part: float = 1.0) -> None:
        """Check that a disk has more free than its reserve, or a part of it for what soon frees as much as it takes.

        Raises:
            ReserveReached: one has not.
        """
        now = self._clock()
        if self._places and now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            before, self._left = self._left, await asyncio.to_thread(self._look)
            if self._left < 1 <= before:
                logger.warning("The disk of the state has no more free than its reserve: clients can store nothing.")
        if self._left < part:
            raise ReserveReached("The disk has no more free than its reserve.")

    def _look(self) -> float:
        """Return how many times its reserve the fullest disk has free."""
        left = float("inf")
        for place in self._places:
            try:
                space = look_at(place)
            except OSError:
                continue  # A request that uses it fails with an error of its own.
            reserve = min(space.total // _PART, GIB) if self._reserve_bytes is None else self._reserve_bytes
            if reserve:
                left = min(left, space.free / reserve)
        return left


def disk_reserve_of(state: ResolvedState) -> DiskReserve:
    """Return the reserve of the disks that hold the database and the objects, as far as they are local."""
    places = []
    database = make_url(state.database_url)
    if database.drivername.startswith("sqlite"):
        places.append(Path(database.database or "").parent)
    objects = urlsplit(state.object_store.url)
    if objects.scheme == "file":
        places.append(Path(unquote(objects.path)))
    return DiskReserve(places, state.config.disk_reserve_bytes)
