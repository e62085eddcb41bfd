"""The background work on vector stores: indexing files and tidying indexes, each under a claim.

Any process may claim work, and another one continues if it dies. A claim of files has a run id of its own, which fences
the writes to the rows and marks the entries in the index.
"""

import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, and_, delete, or_, select, update

from deployments.state.database.lease_watch import LeaseWatch, may_be_free
from deployments.state.database.vector_store_tables import vector_store_files as files
from deployments.state.database.vector_store_tables import vector_stores as stores
from deployments.state.identity.principal import principal_of
from deployments.state.vector_stores.rows import ClaimedFile, ErrorCode, StoredStore, note_change, open_file, open_store
from deployments.state.vector_stores.store import VectorStores

MAX_CLAIMS = 5
"""How often the indexing of a file is tried before it fails: the file may be what ends the process."""
_MAX_WAIT_S = 60.0
FAILED_OFTEN = "The file could not be indexed. Please try again."


class Claim(NamedTuple):
    """Files of one store for the caller to index, under one run id."""

    store: StoredStore
    run_id: str
    files: Sequence[ClaimedFile]


class Tidying(NamedTuple):
    """A store whose index the caller tidies; with `is_gone` the whole index goes."""

    store_id: str
    embedding_model: str
    tidy_at: float
    revision: int
    is_dirty: bool
    is_gone: bool


class _Waiting(NamedTuple):
    """A file whose lease may have ended."""

    store_id: str
    file_id: str
    run_id: str
    lease_until: float


class VectorStoreWork:
    """The work on the vector stores of one database."""

    def __init__(
        self, vector_stores: VectorStores, monotonic: Callable[[], float] = time.monotonic, region: str = ""
    ) -> None:
        """Take the files of keys that may be served in `region`; it is empty where there is only one."""
        self._region = region
        self._stores = vector_stores
        self._database = vector_stores.database
        self._watch = LeaseWatch(monotonic)

    async def claim(self, lease_s: float, max_files: int) -> Claim | None:
        """Return files that wait to be indexed, of the store that has waited longest; None if there are none."""
        now, run_id = self._stores.clock(), secrets.token_hex(16)
        columns = (files.c.store_id, files.c.file_id, files.c.run_id, files.c.lease_until)
        query = select(*columns, files.c.principal).where(
            files.c.status == "in_progress", may_be_free(files.c.lease_until, now, lease_s)
        )
        async with self._database.read() as connection:
            leased = (await connection.execute(query.order_by(files.c.created_at, files.c.file_id).limit(1000))).all()
        found = [_Waiting(*one[:4]) for one in leased if principal_of(one.principal).may_run_in(self._region)]
        free = self._watch.free(found, now, lease_s)
        if not free:
            return None
        store_id = free[0].store_id
        seen = {one.file_id: one.lease_until for one in free if one.store_id == store_id}
        rows = []
        async with self._database.write() as connection:
            query = select(files).where(files.c.store_id == store_id, files.c.file_id.in_(list(seen)[:max_files]))
            waiting = (await connection.execute(query.with_for_update())).mappings().all()
            for row in waiting:
                if row["status"] != "in_progress" or row["lease_until"] != seen[row["file_id"]]:
                    continue  # Another process has claimed it.
                of_file = (files.c.store_id == store_id, files.c.file_id == row["file_id"])
                if row["num_claims"] >= MAX_CLAIMS:
                    error = {"error_code": "server_error", "error_message": FAILED_OFTEN}
                    await connection.execute(update(files).where(*of_file).values(status="failed", **error))
                    continue
                values = {"run_id": run_id, "lease_until": now + lease_s, "num_claims": row["num_claims"] + 1}
                await connection.execute(update(files).where(*of_file).values(values))
                rows.append({**row, **values})
            query = select(stores).where(stores.c.store_id == store_id)
            store_row = (await connection.execute(query)).mappings().one_or_none()
        if not rows or store_row is None:
            return None
        account_key = await self._stores.vault.account_key(store_row["account"])
        claimed = [ClaimedFile(open_file(row, account_key), principal_of(row["principal"])) for row in rows]
        return Claim(open_store(dict(store_row), account_key, now), run_id, claimed)

    async def renew(self, run_id: str, lease_s: float) -> set[str]:
        """Renew a claim; return the ids of the files that it still covers."""
        mine = and_(files.c.run_id == run_id, files.c.status == "in_progress")
        statement = update(files).where(mine).values(lease_until=self._stores.clock() + lease_s)
        async with self._database.write() as connection:
            return set((await connection.scalars(statement.returning(files.c.file_id))).all())

    async def release(self, run_id: str) -> None:
        """Give up a claim, so that another process can take its files at once; the attempt does not count."""
        mine = and_(files.c.run_id == run_id, files.c.status == "in_progress")
        values = {"lease_until": 0.0, "num_claims": files.c.num_claims - 1}
        async with self._database.write() as connection:
            await connection.execute(update(files).where(mine).values(values))

    async def complete(
        self, run_id: str, store_id: str, usage_bytes: dict[str, int], lacking: str | None = None
    ) -> None:
        """Mark indexed files as completed, so that searches find them; files that the claim has lost do not change.

        `lacking` is the object store to whose index their entries are to be copied.
        """
        async with self._database.write() as connection:
            for file_id, num_bytes in usage_bytes.items():
                mine = and_(files.c.run_id == run_id, files.c.file_id == file_id, files.c.status == "in_progress")
                values = {"status": "completed", "usage_bytes": num_bytes, "lacking": lacking}
                values |= {"error_code": None, "error_message": None}
                await connection.execute(update(files).where(files.c.store_id == store_id, mine).values(values))
            await note_change(connection, [store_id], self._stores.clock())

    async def fail(self, run_id: str, store_id: str, file_id: str, code: ErrorCode, message: str) -> None:
        """Mark a file as failed; `message` is the reason, without any of its content."""
        mine = and_(files.c.run_id == run_id, files.c.file_id == file_id, files.c.status == "in_progress")
        values = {"status": "failed", "error_code": code, "error_message": message[:500]}
        async with self._database.write() as connection:
            await connection.execute(update(files).where(files.c.store_id == store_id, mine).values(values))

    async def claim_tidying(self, lease_s: float) -> Tidying | None:
        """Return a store whose index is due for tidying, None if there is none.

        A store whose files are being indexed waits up to a minute for them, unless its whole index goes.
        """
        now = self._stores.clock()
        busy = select(files.c.store_id).where(files.c.status == "in_progress", files.c.lease_until > now)
        is_gone = or_(stores.c.is_deleted, stores.c.has_expired)
        has_waited = stores.c.tidy_at <= now - _MAX_WAIT_S
        due = select(stores).where(stores.c.tidy_at <= now, or_(is_gone, has_waited, stores.c.store_id.not_in(busy)))
        async with self._database.read() as connection:
            row = (await connection.execute(due.order_by(stores.c.tidy_at).limit(1))).mappings().one_or_none()
        if row is None:
            return None
        unchanged = and_(stores.c.store_id == row["store_id"], stores.c.tidy_at == row["tidy_at"])
        async with self._database.write() as connection:
            statement = update(stores).where(unchanged).values(tidy_at=now + lease_s)
            if not (await connection.execute(statement)).rowcount:
                return None
        return Tidying(
            row["store_id"],
            row["embedding_model"],
            now + lease_s,
            row["revision"],
            row["is_dirty"],
            row["is_deleted"] or row["has_expired"],
        )

    async def live_files(self, store_id: str) -> Collection[tuple[str, str]]:
        """Return the files that count in a store's index, or are being indexed: pairs of run id and file id."""
        return await self._pairs(files.c.store_id == store_id)

    async def files_to_copy(self, store_id: str, lacking: str) -> Collection[tuple[str, str]]:
        """Return the files whose entries the index of an object store lacks: pairs of run id and file id."""
        return await self._pairs(
            and_(files.c.store_id == store_id, files.c.lacking == lacking, files.c.status == "completed")
        )

    async def _pairs(self, condition: ColumnElement[bool]) -> Collection[tuple[str, str]]:
        query = select(files.c.run_id, files.c.file_id).where(condition)
        async with self._database.read() as connection:
            return {(run_id, file_id) for run_id, file_id in (await connection.execute(query)).all()}

    async def note_copied(self, store_id: str, copied: Collection[tuple[str, str]]) -> None:
        """Note that both indexes have the entries of files, given as pairs of run id and file id."""
        async with self._database.write() as connection:
            for run_id, file_id in copied:
                of_file = and_(files.c.store_id == store_id, files.c.file_id == file_id, files.c.run_id == run_id)
                await connection.execute(update(files).where(of_file).values(lacking=None))

    async def end_tidying(self, tidied: Tidying, again_in_s: float | None) -> None:
        """Note that an index was tidied, and when it is due again; a change of the store meanwhile has precedence."""
        of_store = and_(stores.c.store_id == tidied.store_id, stores.c.tidy_at == tidied.tidy_at)
        async with self._database.write() as connection:
            if tidied.is_gone:
                await connection.execute(delete(stores).where(of_store, stores.c.is_deleted))
            values = {
                "is_dirty": False,
                "tidy_at": None if again_in_s is None else self._stores.clock() + again_in_s,
                "revision": stores.c.revision + 1,
            }
            await connection.execute(update(stores).where(of_store).values(values))
