"""Ties object stores to their database: both hold the same marker, written at the first start.

Without it, a start with the wrong disk or bucket would find every file missing, and a start with an empty database
would delete everything in the object store as orphans. The marker is written to the database first, and noted as
written once it is in the object store too. The next start finishes what a start has left between the two.
"""

import asyncio
import logging
import secrets
from typing import NamedTuple

from sqlalchemy import select, update
from sqlalchemy.exc import DBAPIError

from deployments.config import ConfigError
from deployments.state.database.connection import Database
from deployments.state.database.tables.content import object_stores
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.copies import PendingCopies, Side
from deployments.state.objects.pair import PairedStore
from deployments.state.objects.store import BucketStore, ObjectMissing, ObjectStore, StoreUnavailable
from deployments.waiting import worth_logging

logger = logging.getLogger(__name__)

MARKER_KEY = "manta-marker"
_FIRST = "files"
_CHECK_TIMEOUT_S = 10.0
_PATIENT_S = 1.0
_OVERRIDE = "If they are to belong together as they are now, run `manta adopt-object-store`."


class _Known(NamedTuple):
    """The marker in the database."""

    marker: str
    is_written: bool


async def open_objects(database: Database, config: ResolvedObjectStore, *, is_patient: bool = False) -> ObjectStore:
    """Return the object store of a configuration, after checking that it belongs to the database.

    An unreachable object store counts as the right one: requests that need it fail, and all others work.

    Raises:
        ConfigError: it belongs to another database, or this database to another object store. With `is_patient`, it is
            checked each second until it is the right one.
    """
    opened = _open_patiently if is_patient else _open
    near = await opened(database, config)
    if config.other is None:
        return near
    far = await opened(database, config.other)
    pending = PendingCopies(database) if config.copies != "provider" else None
    return PairedStore(
        Side(config.name, near), Side(config.other.name, far), pending, waits_for_both=config.copies == "both"
    )


async def _open_patiently(database: Database, config: ResolvedObjectStore) -> BucketStore:
    num_failures = 0
    while True:
        try:
            return await _open(database, config)
        except (ConfigError, DBAPIError) as error:
            reason = error if isinstance(error, ConfigError) else f"The database is away: {type(error).__name__}."
        num_failures += 1
        if worth_logging(num_failures):
            logger.warning("%s The object store is checked again each second.", reason)
        await asyncio.sleep(_PATIENT_S)


async def _open(database: Database, config: ResolvedObjectStore) -> BucketStore:
    objects = create_objects(config)
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            await mark(database, objects, config.url, config.name)
        objects.expect(MARKER_KEY)
    except (StoreUnavailable, TimeoutError) as error:
        logger.warning("The object store could not be checked: %s", type(error).__name__)
    return objects


def create_objects(config: ResolvedObjectStore) -> BucketStore:
    """Return the first object store of a configuration, unchecked.

    Raises:
        ConfigError: its directory cannot be created.
    """
    try:
        return BucketStore(config)
    except OSError as error:
        message = f"The directory of state.object_store.url, {config.url}, cannot be created: {error.strerror}."
        raise ConfigError(message) from None


async def mark(database: Database, objects: ObjectStore, url: str, name: str = _FIRST) -> None:
    """Check that both hold the same marker; if neither has one, write one.

    Raises:
        ConfigError: they do not belong together; the message names the object store by `url`.
        StoreUnavailable: the object store fails.
    """
    found = await _read(objects)  # Read first: a marker is in the database before it is in the object store.
    known = await _known(database, name)
    if known is None and found is None:
        known = await _create(database, name)
    if known is not None and found is None and known.is_written:
        found = await _read(objects)  # It may have been written between the two reads.
    elif known is not None and found is None:
        await objects.put(MARKER_KEY, known.marker.encode())
        found = known.marker
    _compare(known, found, url)
    if known is not None and not known.is_written:
        await _note_written(database, name, known.marker)


async def check(database: Database | None, objects: ObjectStore | None, url: str, name: str = _FIRST) -> None:
    """Check like `mark`, but write nothing; the database or the folder of the objects is None if it does not exist."""
    found = None if objects is None else await _read(objects)
    known = None if database is None else await _known(database, name)
    if found is not None or (known is not None and known.is_written):
        _compare(known, found, url)


async def adopt(database: Database, objects: ObjectStore, name: str = _FIRST) -> None:
    """Tie the database and the object store together, whatever they held before.

    Raises:
        StoreUnavailable: the object store fails; the next start or another call finishes the work.
    """
    marker = secrets.token_hex(16)
    async with database.write() as connection:
        row = {"name": name, "marker": marker, "is_written": False}
        await connection.execute(database.upsert(object_stores, ["name"]), row)
    await objects.put(MARKER_KEY, marker.encode())
    await _note_written(database, name, marker)


def _compare(known: _Known | None, found: str | None, url: str) -> None:
    if known is None:
        raise ConfigError(
            f"The object store {url} belongs to another database than this one, which has no files. What it holds "
            "would be deleted as orphans. Look at state.database_url, and at state.object_store.url. " + _OVERRIDE
        )
    if found is None:
        raise ConfigError(
            f"The object store {url} is empty, or not the same as before: the files that the database knows are not in "
            "it. Look at state.object_store.url, and whether its disk is mounted. " + _OVERRIDE
        )
    if found != known.marker:
        raise ConfigError(
            f"The object store {url} belongs to another database than this one. Look at state.object_store.url, and at "
            "state.database_url. " + _OVERRIDE
        )


async def _read(objects: ObjectStore) -> str | None:
    try:
        return (await objects.read(MARKER_KEY, 0, 64)).decode("ascii", "replace")
    except ObjectMissing:
        return None


async def _known(database: Database, name: str) -> _Known | None:
    query = select(object_stores.c.marker, object_stores.c.is_written).where(object_stores.c.name == name)
    row = (await database.fetch(query)).one_or_none()
    return None if row is None else _Known(*row)


async def _create(database: Database, name: str) -> _Known | None:
    """Write a marker into the database, unless another process just has; return the marker in the database."""
    row = {"name": name, "marker": secrets.token_hex(16), "is_written": False}
    await database.execute(database.insert_or_ignore(object_stores).values(row))
    return await _known(database, name)


async def _note_written(database: Database, name: str, marker: str) -> None:
    async with database.write() as connection:
        of_marker = (object_stores.c.name == name) & (object_stores.c.marker == marker)
        await connection.execute(update(object_stores).where(of_marker).values(is_written=True))
