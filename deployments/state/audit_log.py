"""The audit log: who did what with keys and configuration, and when. Rows are only added.

Whoever makes a change appends its entry in the transaction of the change: neither is there without the other. An entry
holds no secret and no content.
"""

import getpass
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import and_, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.queries import clean_id
from deployments.state.database.tables.service import audit_log

ActorKind = Literal["api_key", "session", "command_line", "service"]
MAX_PAGE = 1_000
_MAX_ACTOR = 64
_MAX_TARGET = 128


class UnknownEntry(LookupError):
    """There is no entry with this id."""


@dataclass(frozen=True, slots=True)
class Actor:
    """What made a change: an admin key, a session of the console under a key, a user at the command line, the service.

    `id` is the id of the key, or the name of the user or of the part of the service.
    """

    kind: ActorKind
    id: str


SERVICE = Actor("service", "manta")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change. `at` is in Unix seconds.

    `event` is a name like `api_key.created`, one of OpenAI's where it has one. `target` is the id of what was changed,
    `account` its account, `details` the fields that were set.
    """

    entry_id: str
    at: float
    event: str
    actor: Actor
    account: str | None
    target: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are shown: those with any of the given values; None leaves a field open. Times are Unix seconds:
    from `since`, before `until`.
    """

    events: tuple[str, ...] | None = None
    actor_ids: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    accounts: tuple[str, ...] | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of entries, newest first."""

    entries: list[AuditEntry]
    has_more: bool


async def append_entry(
    connection: AsyncConnection,
    event: str,
    actor: Actor,
    target: str,
    *,
    account: str | None = None,
    details: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Append an entry in the caller's transaction, which is that of the change. `details` must be JSON."""
    row = {
        "entry_id": f"audit_log-{secrets.token_hex(16)}",
        "at": clock(),
        "event": event,
        "actor_kind": actor.kind,
        "actor_id": clean_id(actor.id)[:_MAX_ACTOR],
        "account": account,
        "target": clean_id(target)[:_MAX_TARGET],
        "details": dict(details or {}),
    }
    await connection.execute(insert(audit_log).values(row))


def command_line_actor() -> Actor:
    """Return the user who runs this process, as the actor of commands."""
    try:
        return Actor("command_line", getpass.getuser())
    except (KeyError, OSError):
        return Actor("command_line", "unknown")


class AuditLog:
    """The audit log of one database. Every method raises DBAPIError if the database is away or fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(
        self,
        event: str,
        actor: Actor,
        target: str,
        *,
        account: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Append an entry about a change that has no transaction of its own."""
        async with self._database.write() as connection:
            await append_entry(connection, event, actor, target, account=account, details=details)

    async def page(
        self, where: AuditFilter, limit: int, *, after: str | None = None, before: str | None = None
    ) -> AuditPage:
        """Return the entries behind the entry `after`, or the last ones ahead of the entry `before`; newest first.

        Raises:
            UnknownEntry: there is no entry `after` or `before`.
        """
        limit = min(limit, MAX_PAGE)
        log = audit_log.c
        query = select(audit_log).where(*_conditions(where)).limit(limit + 1)
        is_backward = after is None and before is not None
        async with self._database.read() as connection:
            cursor = before if is_backward else after
            if cursor is not None:
                place = select(log.at, log.entry_id).where(log.entry_id == clean_id(cursor))
                found = (await connection.execute(place)).one_or_none()
                if found is None:
                    raise UnknownEntry(cursor)
                is_newer = or_(log.at > found.at, and_(log.at == found.at, log.entry_id > found.entry_id))
                is_older = or_(log.at < found.at, and_(log.at == found.at, log.entry_id < found.entry_id))
                query = query.where(is_newer if is_backward else is_older)
            order = (log.at.asc(), log.entry_id.asc()) if is_backward else (log.at.desc(), log.entry_id.desc())
            rows = (await connection.execute(query.order_by(*order))).mappings().all()
        entries = [_entry_of(dict(row)) for row in rows[:limit]]
        return AuditPage(entries[::-1] if is_backward else entries, len(rows) > limit)


def _conditions(where: AuditFilter) -> list[Any]:
    log = audit_log.c
    lists = (
        (log.event, where.events),
        (log.actor_id, where.actor_ids),
        (log.target, where.targets),
        (log.account, where.accounts),
    )
    conditions: list[Any] = [column.in_([clean_id(one) for one in wanted]) for column, wanted in lists if wanted]
    if where.since is not None:
        conditions.append(log.at >= where.since)
    if where.until is not None:
        conditions.append(log.at < where.until)
    return conditions


def _entry_of(row: dict[str, Any]) -> AuditEntry:
    actor = Actor(row.pop("actor_kind"), row.pop("actor_id"))
    return AuditEntry(actor=actor, **row)
