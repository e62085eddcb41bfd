"""The background work on vector stores: to index files and to tidy indexes, each under a claim.

Any process may claim work, and another continues if it dies. Accounts take turns.

A claim of files has a run id, which fences the writes to the rows and marks the entries in the index. A file that is
released between two of its parts keeps its run, and the next claim continues it. If a claim ends in another way, nobody
knows what is in the index: the file begins again under another run, but its tokens are not counted again.
"""

import secrets
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, case, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.queues import ONE, Lane, LeaseWatch, Places, Turns
from deployments.state.database.tables.content import vector_store_files as files
from deployments.state.database.tables.content import vector_stores as stores
from deployments.state.database.tables.service import api_keys
from deployments.state.identity.principal import Principal, principal_of
from deployments.state.vector_stores.rows import ClaimedFile, ErrorCode, StoredStore, note_change, open_file, open_store
from deployments.state.vector_stores.store import VectorStores

MAX_CLAIMS = 5
"""The claims of a file before it fails: the file itself may kill the processes that index it."""
_MAX_WAIT_S = 60.0
_GIVEN_UP = -1.0
"""The lease of a file without a claim whose part in the index counts."""
_IS_WAITING = files.c.status == "in_progress"
_FILE_TURNS = Turns("files", files.c.account, files.c.key_id, files.c.created_at, _IS_WAITING)
_STORE_TURNS = Turns("stores", stores.c.account, stores.c.account, stores.c.tidy_at, stores.c.tidy_at.is_not(None))
FAILED_OFTEN = "The file could not be indexed. Please try again."


class Claim(NamedTuple):
    """Files that one key has put into one store, for the caller to index under one run id."""

    store: StoredStore
    run_id: str
    files: Sequence[ClaimedFile]

    @property
    def principal(self) -> Principal:
        """The principal that put the files into the store."""
        return self.files[0].principal


class Tidying(NamedTuple):
    """A store whose index the caller tidies; if the store `is_gone`, the whole index goes."""

    account: str
    store_id: str
    embedding_model: str
    tidy_at: float
    revision: int
    is_dirty: bool
    is_gone: bool


class VectorStoreWork:
    """The work on the vector stores of one database."""

    def __init__(
        self, vector_stores: VectorStores, monotonic: Callable[[], float] = time.monotonic, region: str = ""
    ) -> None:
        """Take the files of keys that may be served in `region`, empty if there is only one."""
        self._region = region
        self._stores = vector_stores
        self._database = vector_stores.database
        self._watch = LeaseWatch(monotonic)

    async def claim(
        self, lease_s: float, max_files: int, places: Places = ONE, resting: Collection[str] = ()
    ) -> Claim | None:
        """Return files that wait to be indexed, of the account whose turn it is; None if there are none.

        `places` are for the caller's claims. Keys that are `resting` are skipped; files of a revoked key are cancelled.
        """
        now, lease = self._stores.clock(), (files.c.run_id, files.c.lease_until)
        names = (files.c.store_id, files.c.file_id)
        await self._watch.end_abandoned(self._database, names, lease, now, lease_s, _IS_WAITING)
        columns = (*names, files.c.principal) if self._region else names
        async with self._database.read() as connection:
            lanes = await _FILE_TURNS.lanes(connection, files.c.lease_until <= now, *columns)
        for lane in places.admit([lane for lane in lanes if self._may_serve(lane, resting)]):
            async with self._database.write() as connection:
                if await self._end_revoked(connection, lane.lane):
                    continue
                await _FILE_TURNS.note_served(connection, self._database, [lane])
                rows = await self._claim_files(connection, lane, now, lease_s, max_files)
                query = select(stores).where(stores.c.store_id == lane.first["store_id"])
                store = (await connection.execute(query)).mappings().one_or_none()
            if rows and store is not None:
                account_key = await self._stores.vault.account_key(store["account"])
                claimed = [ClaimedFile(open_file(row, account_key), principal_of(row["principal"])) for row in rows]
                return Claim(open_store(dict(store), account_key, now), rows[0]["run_id"], claimed)
        return None

    def _may_serve(self, lane: Lane, resting: Collection[str]) -> bool:
        if lane.lane in resting:
            return False
        return not self._region or principal_of(lane.first["principal"]).may_run_in(self._region)

    async def _claim_files(
        self, connection: AsyncConnection, lane: Lane, now: float, lease_s: float, max_files: int
    ) -> list[dict[str, Any]]:
        """Claim files of a lane, in the store of the first; it alone if a part of it is indexed. Return their rows."""
        of_store = (files.c.store_id == lane.first["store_id"], files.c.key_id == lane.lane)
        query = select(files).where(_IS_WAITING, *of_store, files.c.lease_until <= now)
        query = query.order_by(files.c.created_at, files.c.file_id).limit(max_files).with_for_update()
        waiting = [dict(row) for row in (await connection.execute(query)).mappings()]
        run_id, rows = secrets.token_hex(16), list[dict[str, Any]]()
        for row in waiting:
            of_file = (files.c.store_id == row["store_id"], files.c.file_id == row["file_id"])
            goes_on = row["num_indexed"] > 0 and row["lease_until"] == _GIVEN_UP
            if rows and (goes_on or row["principal"] != rows[0]["principal"]):
                break
            if row["num_claims"] >= MAX_CLAIMS:
                error = {"error_code": "server_error", "error_message": FAILED_OFTEN}
                await connection.execute(update(files).where(*of_file).values(status="failed", run_id="", **error))
                await note_change(connection, [row["store_id"]], now)
                continue
            values: dict[str, Any] = {"lease_until": now + lease_s, "num_claims": row["num_claims"] + 1}
            if not goes_on:
                values |= {"run_id": run_id, "num_indexed": 0}
            await connection.execute(update(files).where(*of_file).values(values))
            rows.append(row | values)
            if goes_on:
                break
        return rows

    async def _end_revoked(self, connection: AsyncConnection, key_id: str) -> bool:
        """Cancel the waiting files of a key that is revoked; return whether it is."""
        is_revoked = select(api_keys.c.key_id).where(api_keys.c.key_id == key_id, api_keys.c.revoked_at.is_not(None))
        if await connection.scalar(is_revoked) is None:
            return False
        ended = update(files).where(_IS_WAITING, files.c.key_id == key_id).values(status="cancelled", run_id="")
        store_ids = (await connection.scalars(ended.returning(files.c.store_id))).all()
        await note_change(connection, list(dict.fromkeys(store_ids)), self._stores.clock())
        return True

    async def renew(self, run_id: str, lease_s: float) -> set[str]:
        """Renew a claim; return the ids of the files that it still covers."""
        lease_until = self._stores.clock() + lease_s
        statement = update(files).where(_IS_WAITING, files.c.run_id == run_id).values(lease_until=lease_until)
        return set((await self._database.execute(statement.returning(files.c.file_id))).scalars().all())

    async def release(self, run_id: str) -> None:
        """Release a claim, so that another can continue with its files at once; the claim does not count.

        `note_part` must have been called for everything in the index.
        """
        mine = and_(_IS_WAITING, files.c.run_id == run_id)
        values = {"lease_until": _GIVEN_UP, "num_claims": files.c.num_claims - 1}
        await self._database.execute(update(files).where(mine).values(values))

    async def restart(self, run_id: str) -> None:
        """Release a claim and drop its entries in the index: the next claim begins its files again."""
        mine = and_(_IS_WAITING, files.c.run_id == run_id)
        async with self._database.write() as connection:
            changed = update(files).where(mine).values(lease_until=0.0, run_id="", num_indexed=0)
            store_ids = (await connection.scalars(changed.returning(files.c.store_id))).all()
            await note_change(connection, list(dict.fromkeys(store_ids)), self._stores.clock())

    async def note_part(self, run_id: str, store_id: str, file_id: str, num_indexed: int, indexed_in: str) -> bool:
        """Note the number of chunks of a file in the index of an object store; return whether the claim still holds."""
        mine = and_(files.c.store_id == store_id, files.c.file_id == file_id, files.c.run_id == run_id, _IS_WAITING)
        num_counted = case((files.c.num_counted > num_indexed, files.c.num_counted), else_=num_indexed)
        values = {"num_indexed": num_indexed, "num_counted": num_counted, "indexed_in": indexed_in}
        async with self._database.write() as connection:
            if not (await connection.execute(update(files).where(mine).values(values))).rowcount:
                await note_change(connection, [store_id], self._stores.clock())
                return False
            # A search that begins now leaves the run out; earlier searches do not see its entries.
            changed = update(stores).where(stores.c.store_id == store_id).values(revision=stores.c.revision + 1)
            await connection.execute(changed)
        return True

    async def has_store(self, store_id: str) -> bool:
        """Return whether a store has a row, also if it is deleted and only its index is left."""
        query = select(stores.c.store_id).where(stores.c.store_id == store_id)
        return (await self._database.fetch(query)).scalar() is not None

    async def complete(
        self, run_id: str, store_id: str, usage_bytes: dict[str, int], lacking: str | None = None
    ) -> bool:
        """Mark indexed files as completed, so that searches find them; files that the claim has lost do not change.

        Their entries will be copied to the index of the object store `lacking`. Return whether no file was lost.
        """
        num_completed = 0
        async with self._database.write() as connection:
            for file_id, num_bytes in usage_bytes.items():
                mine = and_(files.c.run_id == run_id, files.c.file_id == file_id, files.c.status == "in_progress")
                values = {"status": "completed", "usage_bytes": num_bytes, "lacking": lacking}
                values |= {"error_code": None, "error_message": None}
                changed = update(files).where(files.c.store_id == store_id, mine).values(values)
                num_completed += (await connection.execute(changed)).rowcount
            await note_change(connection, [store_id], self._stores.clock())
        return num_completed == len(usage_bytes)

    async def fail(self, run_id: str, store_id: str, file_id: str, code: ErrorCode, message: str) -> None:
        """Mark a file as failed; `message` is the reason, without any of its content."""
        mine = and_(files.c.run_id == run_id, files.c.file_id == file_id, files.c.status == "in_progress")
        values = {"status": "failed", "run_id": "", "error_code": code, "error_message": message[:500]}
        async with self._database.write() as connection:
            await connection.execute(update(files).where(files.c.store_id == store_id, mine).values(values))
            await note_change(connection, [store_id], self._stores.clock())

    async def claim_tidying(self, lease_s: float, places: Places = ONE, *, only_late: bool = False) -> Tidying | None:
        """Return a store whose index is due for tidying, of the account whose turn it is; None if there is none.

        A store waits up to a minute while its files are being indexed, unless its whole index goes. `only_late` leaves
        out the stores that can still wait.
        """
        now = self._stores.clock()
        busy = select(files.c.store_id).where(files.c.status == "in_progress", files.c.lease_until > now)
        is_gone = or_(stores.c.is_deleted, stores.c.has_expired)
        has_waited = stores.c.tidy_at <= now - _MAX_WAIT_S
        can_wait = [] if only_late else [stores.c.store_id.not_in(busy)]
        is_due = and_(stores.c.tidy_at <= now, or_(is_gone, has_waited, *can_wait))
        async with self._database.read() as connection:
            lanes = await _STORE_TURNS.lanes(connection, is_due, stores.c.store_id, stores.c.tidy_at)
        lane = next(iter(places.admit(lanes)), None)
        if lane is None:
            return None
        first = lane.first
        unchanged = and_(stores.c.store_id == first["store_id"], stores.c.tidy_at == first["tidy_at"])
        async with self._database.write() as connection:
            statement = update(stores).where(unchanged).values(tidy_at=now + lease_s).returning(stores)
            row = (await connection.execute(statement)).mappings().one_or_none()
            if row is None:
                return None
            await _STORE_TURNS.note_served(connection, self._database, [lane])
        values = {name: row[name] for name in Tidying._fields if name in row}
        return Tidying(**values, is_gone=row["is_deleted"] or row["has_expired"])

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
        return {(run_id, file_id) for run_id, file_id in (await self._database.fetch(query)).all()}

    async def note_copied(self, store_id: str, copied: Collection[tuple[str, str]]) -> None:
        """Note that both indexes have the entries of files, given as pairs of run id and file id."""
        async with self._database.write() as connection:
            for run_id, file_id in copied:
                of_file = and_(files.c.store_id == store_id, files.c.file_id == file_id, files.c.run_id == run_id)
                await connection.execute(update(files).where(of_file).values(lacking=None))

    async def end_tidying(self, tidied: Tidying, again_in_s: float | None) -> None:
        """Note that an index was tidied, and when it is due again, unless the store has changed meanwhile."""
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
