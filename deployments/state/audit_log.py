"""The audit log: who changed keys and configuration, how, and when. Rows are only added.

A store appends the entry of a change in the same transaction. An entry holds no secret and no content.
"""

import getpass
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import ColumnElement, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, fetch_page
from deployments.state.database.tables.service import audit_log

ActorKind = Literal["api_key", "session", "command_line", "service"]
MAX_PAGE = 1_000
_MAX_ACTOR = 64
_MAX_TARGET = 128


class UnknownEntry(LookupError):
    """There is no entry with this id."""


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change: an admin key, a session of the console, a user at the command line, or the service.

    `id` is the id of the key, also for a session, or the name of the user or of the service.
    """

    kind: ActorKind
    id: str


SERVICE = Actor("service", "manta")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change. `at` is in Unix seconds.

    `event` is a name like `api_key.created`, OpenAI's name where there is one. `target` is the id of the changed
    object, `account` its account, `details` the fields that were set.
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
    """The entries with any of the given values; None accepts all. Times are Unix seconds, `until` is excluded."""

    events: tuple[str, ...] | None = None
    actor_ids: tuple[str, ...] | None = None
    targets: tuple[str, ...] | None = None
    accounts: tuple[str, ...] | None = None
    since: float | None = None
    until: float | None = None


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
    """Append an entry in the caller's transaction, which makes the change. `details` must be JSON."""
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
    """Return the user of this process, as the actor of commands."""
    try:
        return Actor("command_line", getpass.getuser())
    except (KeyError, OSError):
        return Actor("command_line", "unknown")


class AuditLog:
    """The audit log of one database. Every method raises DBAPIError if the database is away or fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, where: AuditFilter, limit: int, *, after: str | None = None, before: str | None = None
    ) -> tuple[list[AuditEntry], bool]:
        """Return entries, the newest first, and whether there are more: at most `limit`, or MAX_PAGE if that is less.

        They come after the entry `after`, or are the last before the entry `before`.

        Raises:
            UnknownEntry: there is no entry `after` or `before`.
        """
        page = Page(min(limit, MAX_PAGE), after=after, before=before)
        query, log = select(audit_log), audit_log.c
        async with self._database.read() as connection:
            rows, has_more = await fetch_page(
                connection, query, log.entry_id, page, UnknownEntry, *_conditions(where), at=log.at
            )
        return [_entry_of(row) for row in rows], has_more


def _conditions(where: AuditFilter) -> list[ColumnElement[bool]]:
    log = audit_log.c
    lists = (
        (log.event, where.events),
        (log.actor_id, where.actor_ids),
        (log.target, where.targets),
        (log.account, where.accounts),
    )
    conditions: list[ColumnElement[bool]] = [
        column.in_([clean_id(one) for one in wanted]) for column, wanted in lists if wanted
    ]
    if where.since is not None:
        conditions.append(log.at >= where.since)
    if where.until is not None:
        conditions.append(log.at < where.until)
    return conditions


def _entry_of(row: dict[str, Any]) -> AuditEntry:
    actor = Actor(row.pop("actor_kind"), row.pop("actor_id"))
    return AuditEntry(actor=actor, **row)
