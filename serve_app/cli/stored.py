"""What `manta doctor` says of the database, the object store and the disk, without changing them."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sqlalchemy.exc import DBAPIError

from deployments.config import ConfigError
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database
from deployments.state.database.looking import looking_at
from deployments.state.objects import marker
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import StoreUnavailable
from serve_app.checks.check import Finding

_GIB = 1024**3
_MIN_DISK_BYTES = 4 * _GIB
_DATABASE = {
    "empty": Finding("ok", "The database answers, and is empty: the first start creates its tables"),
    "old": Finding("ok", "The database answers, and the next start brings its tables up to date"),
    "current": Finding("ok", "The database answers, and its tables are up to date"),
    "unknown": Finding(
        "fault", "The database has tables of a version that this one does not know: start the version that wrote them"
    ),
}


def look_at_state(state: ResolvedState) -> Iterator[Finding]:
    """Yield what is found of the state that a configuration names."""
    yield from _look_at_folder(state.state_dir)
    try:
        yield from asyncio.run(_gather(state))
    except ConfigError as error:
        yield Finding("fault", str(error))


def _look_at_folder(folder: Path) -> Iterator[Finding]:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("fault", f"This user may not write into {there}, where the state goes")
        return
    free = shutil.disk_usage(there).free
    text = f"{free / _GIB:.1f} GiB of disk are free for the state in {folder}"
    yield Finding("ok", text) if free >= _MIN_DISK_BYTES else Finding("warning", f"{text}: free some, or set state_dir")


async def _gather(state: ResolvedState) -> list[Finding]:
    return [finding async for finding in _look(state)]


async def _look(state: ResolvedState) -> AsyncIterator[Finding]:
    async with looking_at(state.database_url) as look:
        if look.state == "missing":
            yield Finding("ok", "There is no database yet: the first start creates it")
        else:
            yield _DATABASE[look.state]
        if look.state == "unknown":
            return
        for place in (state.object_store, state.object_store.other):
            if place is not None:
                yield await _look_at_objects(look.database if look.state in ("old", "current") else None, place)


async def _look_at_objects(database: Database | None, place: ResolvedObjectStore) -> Finding:
    is_missing = _is_missing(place.url)
    if is_missing and database is None:
        return Finding("ok", f"There is no folder for {place.url} yet: the first start creates it")
    try:
        objects = None if is_missing else marker.create_objects(place)
        await marker.check(database, objects, place.url, place.name)
    except ConfigError as error:
        return Finding("fault", str(error))
    except DBAPIError:
        return Finding(
            "warning", f"Whether {place.url} belongs to the database can only be checked once its tables are up to date"
        )
    except StoreUnavailable:
        message = "does not answer: files and batches will get a 503 until it does"
        return Finding("warning", f"The object store {place.url} {message}")
    return Finding("ok", "The object store answers, and belongs to the database")


def _is_missing(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()
