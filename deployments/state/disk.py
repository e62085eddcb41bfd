"""The reserve of the local disks with the state: below it clients store nothing, so that keys and limits still work."""

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
    """A disk that holds state has reached its reserve."""


class Space(NamedTuple):
    """The size of a disk, and the part that the service may still write, in bytes."""

    total: int
    free: int


def look_at(place: Path) -> Space:
    """Return the space of the disk that a directory is on.

    Raises:
        OSError: the system cannot tell.
    """
    found = os.statvfs(place)
    return Space(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)


class DiskReserve:
    """The reserve of the disks under some directories, which are looked at once a second at most.

    Each keeps `reserve_bytes` free; None stands for a twentieth of the disk, at most a gibibyte.
    """

    def __init__(
        self, places: Sequence[Path] = (), reserve_bytes: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._places = places
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._looked_at = float("-inf")
        self._left = float("inf")

    async def check(self, part: float = 1.0) -> None:
        """Check that every disk has its reserve free, or a part of it, for work that soon frees what it takes.

        Raises:
            ReserveReached: a disk has not.
        """
        now = self._clock()
        if self._places and now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            before, self._left = self._left, await asyncio.to_thread(self._look)
            if self._left < 1 <= before:
                logger.warning("The disk of the state has reached its reserve: clients can store nothing.")
        if self._left < part:
            raise ReserveReached("The disk has reached its reserve.")

    def _look(self) -> float:
        """Return the free bytes of the fullest disk, in multiples of its reserve."""
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
    """Return the reserve of the local disks with the database and the objects."""
    places = []
    database = make_url(state.database_url)
    if database.drivername.startswith("sqlite"):
        places.append(Path(database.database or "").parent)
    objects = urlsplit(state.object_store.url)
    if objects.scheme == "file":
        places.append(Path(unquote(objects.path)))
    return DiskReserve(places, state.config.disk_reserve_bytes)
