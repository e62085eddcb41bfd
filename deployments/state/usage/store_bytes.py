"""Notes what the vector stores of each account hold, for the hour and the day: a chore of housekeeping."""

from collections.abc import Callable

from sqlalchemy import func, select

from deployments.state.database.connection import Database
from deployments.state.database.usage_tables import Width, vector_store_bytes
from deployments.state.database.vector_store_tables import vector_store_files
from deployments.state.usage.periods import start_of

_KEY = ["width", "start", "account"]
_WIDTHS: tuple[Width, ...] = ("1h", "1d")


async def note_store_bytes(database: Database, clock: Callable[[], float]) -> None:
    """Note the bytes of now. The last note of a period is what the period is shown with."""
    now = clock()
    files, noted = vector_store_files, vector_store_bytes
    held = select(files.c.account, func.sum(files.c.usage_bytes)).group_by(files.c.account)
    async with database.write() as connection:
        num_bytes = {account: int(total) for account, total in await connection.execute(held)}
        rows = []
        for width in _WIDTHS:
            start = start_of(now, width)
            earlier = select(noted.c.account).where(noted.c.width == width, noted.c.start == start)
            accounts = {*(await connection.scalars(earlier)), *(name for name, total in num_bytes.items() if total)}
            rows += [
                {"width": width, "start": start, "account": account, "num_bytes": num_bytes.get(account, 0)}
                for account in sorted(accounts)
            ]
        if rows:
            await connection.execute(database.upsert(noted, _KEY), rows)
