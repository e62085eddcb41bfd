"""Looks at a database without changing it: no file is created, and no table."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from deployments.config import ConfigError
from deployments.patience import USUAL
from deployments.state.database.connection import Database, create_engines, reason_of
from deployments.state.database.migrations import current_revision, head_revision, is_known_revision
from deployments.state.database.sqlite import open_read_only


@dataclass(frozen=True, slots=True)
class Look:
    """A database as it is: whether it is there, has no tables yet, or has those of an older, this or another version.

    `database` is None if there is none.
    """

    state: Literal["missing", "empty", "old", "current", "unknown"]
    database: Database | None = None


@asynccontextmanager
async def looking_at(url: str) -> AsyncIterator[Look]:
    """Open a database to read from.

    Raises:
        ConfigError: it cannot be reached or read.
    """
    parsed = make_url(url)
    if _is_missing(parsed):
        yield Look("missing")
        return
    try:
        database = await _open(parsed)
    except (SQLAlchemyError, OSError) as error:
        raise ConfigError(f"The database cannot be opened: {reason_of(error)}.") from None
    try:
        yield await _look(database, parsed)
    finally:
        await database.close()


def _is_missing(url: URL) -> bool:
    return url.drivername.startswith("sqlite") and not Path(url.database or "").exists()


async def _look(database: Database, url: URL) -> Look:
    try:
        async with database.read() as connection:
            revision = await connection.run_sync(current_revision)
    except (SQLAlchemyError, OSError) as error:
        place = url.render_as_string(hide_password=True)
        raise ConfigError(f"The database {place} cannot be used: {reason_of(error)}.") from None
    if revision is None:
        return Look("empty", database)
    if revision == head_revision():
        return Look("current", database)
    return Look("old" if is_known_revision(revision) else "unknown", database)


async def _open(url: URL) -> Database:
    if not url.drivername.startswith("sqlite"):
        return Database(*await create_engines(url, USUAL), USUAL)
    return Database(open_read_only(Path(url.database or "")))
