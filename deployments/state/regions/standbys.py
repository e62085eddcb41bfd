"""The standbys of the shared database, as its primary sees them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from deployments.state.database.connection import Database

_QUERY = text(
    "SELECT application_name, sync_state, EXTRACT(EPOCH FROM COALESCE(replay_lag, interval '0')), "
    "COALESCE(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0) "
    "FROM pg_stat_replication WHERE state = 'streaming' ORDER BY application_name"
)


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby: how far it is behind, and whether commits wait for it."""

    name: str
    is_synchronous: bool
    lag_s: float
    lag_bytes: int


async def standbys(database: Database) -> Sequence[Standby]:
    """Return the standbys that follow the primary; none on SQLite.

    What they are called and how far they are behind needs the role pg_monitor; without it they are left out.

    Raises:
        DBAPIError: the database is away, or has no primary.
    """
    if database.is_sqlite:
        return []
    async with database.read() as connection:
        rows = (await connection.execute(_QUERY)).all()
    return [Standby(name, state in ("sync", "quorum"), float(lag), int(num)) for name, state, lag, num in rows]
