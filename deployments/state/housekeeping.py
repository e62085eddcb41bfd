"""Housekeeping: deletes expired and orphaned content, each kind at its own interval.

The batch coordinator's process runs it. Each chore has a task of its own, so a chore that fails or hangs delays no
other. A failure is logged without content, and the chore runs again after its interval.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy.exc import DBAPIError

from deployments.state.batches.work import BatchWork
from deployments.state.config import StateConfig
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.containers import ContainerStore
from deployments.state.database.connection import Database
from deployments.state.files.store import ORPHAN_AGE_S, FileStore
from deployments.state.ingress_replicas import IngressRegister
from deployments.state.objects.copies import Copier
from deployments.state.objects.pair import PairedStore
from deployments.state.objects.store import StoreUnavailable, delete_orphans
from deployments.state.responses.chats import ChatStore
from deployments.state.responses.conversations import ConversationStore
from deployments.state.responses.store import ResponseStore
from deployments.state.uploads.store import UploadStore
from deployments.state.usage.rollups import note_store_bytes
from deployments.state.usage.store import LogTrim, UsageStore
from deployments.state.vector_stores.store import VectorStores
from deployments.waiting import repeat

logger = logging.getLogger(__name__)

_LEAD_S = 5.0
_EXPECTED = (DBAPIError, StoreUnavailable, OSError)


@dataclass(frozen=True)
class Intervals:
    """Seconds between two runs of a chore. A deleted key stays in SQLite's log for at most `database_log_s`."""

    expired_s: float = 60.0
    database_log_s: float = 30.0
    orphans_s: float = 3600.0
    request_log_s: float = 3600.0
    copies_s: float = 2.0


@dataclass(frozen=True)
class Chore:
    """Work to repeat; `work` returns a number to log, such as that of deleted rows, or None."""

    name: str
    interval_s: float
    work: Callable[[], Awaitable[int | None]]


class Housekeeping:
    """Runs chores until it is cancelled; `log_bug` logs an unexpected error, without its message.

    With `leads`, only the leading region runs them. It is harmless if two regions do.
    """

    def __init__(
        self,
        chores: Sequence[Chore],
        log_bug: Callable[[str, BaseException], None],
        leads: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._chores = chores
        self._log_bug = log_bug
        self._leads = leads
        self._is_leading = asyncio.Event()
        if leads is None:
            self._is_leading.set()

    async def run(self) -> None:
        """Run every chore now, and again after its interval."""
        async with asyncio.TaskGroup() as group:
            if self._leads is not None:
                lead = partial(self._lead, self._leads)
                group.create_task(repeat("Acquiring the leader lease", _LEAD_S, lead, (DBAPIError, OSError)))
            for chore in self._chores:
                group.create_task(repeat(chore.name, chore.interval_s, partial(self._do, chore), _EXPECTED))

    async def _lead(self, leads: Callable[[], Awaitable[bool]]) -> None:
        try:
            is_leading = await leads()
        except BaseException:
            self._is_leading.clear()
            raise
        if is_leading:
            self._is_leading.set()
        else:
            self._is_leading.clear()

    async def _do(self, chore: Chore) -> None:
        await self._is_leading.wait()
        try:
            num_deleted = await chore.work()
        except _EXPECTED:
            raise
        except Exception as error:  # Otherwise this chore would never run again.
            self._log_bug(chore.name, error)
            return
        if num_deleted:
            logger.info("%s: %d", chore.name, num_deleted)


def create_chores(
    database: Database, files: FileStore, batches: BatchWork, config: StateConfig, intervals: Intervals | None = None
) -> list[Chore]:
    """Return all chores. Their clock is `files.past`, which has no forward jumps."""
    every = Intervals(expired_s=config.sweep_interval_s) if intervals is None else intervals
    vault, past = files.vault, files.past
    uploads = UploadStore(database, files)
    trim = LogTrim(UsageStore(database), config.request_log_days, past)
    copying, objects = [], files.objects
    if isinstance(objects, PairedStore) and objects.pending is not None:
        copier = Copier(objects.near, objects.far, objects.pending)
        copying.append(Chore("Copying objects between the stores", every.copies_s, copier.run))
    return [
        *copying,
        Chore("Deleting expired files", every.expired_s, files.sweep),
        Chore("Deleting uploads that have ended", every.expired_s, uploads.sweep),
        Chore("Deleting expired responses", every.expired_s, ResponseStore(database, vault, past).sweep),
        Chore("Deleting expired chat completions", every.expired_s, ChatStore(database, vault, past).sweep),
        Chore("Deleting expired conversations", every.expired_s, ConversationStore(database, vault, past).sweep),
        Chore("Deleting expired containers", every.expired_s, ContainerStore(database, vault, past).sweep),
        Chore("Ending expired vector stores", every.expired_s, VectorStores(database, vault, past).sweep),
        Chore("Forgetting ingress replicas that have stopped", every.expired_s, IngressRegister(database, past).sweep),
        Chore("Ending sessions of the console", every.expired_s, ConsoleSessions(database, past).sweep),
        Chore("Emptying the database's log", every.database_log_s, database.empty_log),
        Chore("Noting the size of vector stores", every.expired_s, lambda: note_store_bytes(database, past)),
        Chore("Trimming the request log", every.request_log_s, trim.trim),
        Chore("Deleting orphaned files", every.orphans_s, files.sweep_orphans),
        Chore("Deleting orphaned parts", every.orphans_s, uploads.sweep_orphans),
        Chore("Deleting orphaned segments", every.orphans_s, lambda: _sweep_segments(files, batches)),
    ]


async def _sweep_segments(files: FileStore, batches: BatchWork) -> int:
    """Delete segments without a row, unless they are new; return how many."""
    return await delete_orphans(files.objects, "segments", files.past() - ORPHAN_AGE_S, batches.known_segments)
