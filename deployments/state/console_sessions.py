"""The sessions of the console, which every ingress replica accepts, and one-time links that open one.

A cookie or a link holds 256 random bits, a row only their SHA-256. A row refers to its API key by the digest of the
secret, so that a session ends with the secret that opened it.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.audit_log import Actor, append_entry
from deployments.state.database.connection import Database
from deployments.state.database.tables.service import api_keys, console_failures, console_links, console_sessions

SESSION_S = 12 * 3600.0
"""How long a session lasts after its last use."""
LINK_S = 15 * 60.0
"""How long a one-time link can be used."""
FAILURES_S = 300.0
"""Failed sign-ins count for at least this time."""
FORGOTTEN_S = FAILURES_S + 60.0
"""A failure counts for at most this time, since failures are counted by the minute."""
_RENEW_S = 600.0
_EVERYWHERE = ""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session: the token of its cookie, the digest of its key, and its end without another use (Unix seconds)."""

    token: str
    key_digest: bytes
    expires_at: float


class Visitor(NamedTuple):
    """The holder of a key who signs in or out, and the address."""

    key_id: str
    account: str
    address: str


class ConsoleSessions:
    """The sessions, links and failed sign-ins of one database. Every method raises DBAPIError if it is away."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self.clock = clock

    async def open(self, key_digest: bytes, visitor: Visitor) -> StoredSession:
        """Begin a session of the visitor's key, which has this digest; return it."""
        now = self.clock()
        session = StoredSession(secrets.token_urlsafe(32), key_digest, now + SESSION_S)
        row = {"token_digest": _digest(session.token), "key_digest": key_digest, "expires_at": session.expires_at}
        async with self._database.write() as connection:
            await connection.execute(insert(console_sessions).values(row))
            await self._note(connection, "login.succeeded", visitor)
        return session

    async def find(self, token: str) -> StoredSession | None:
        """Return the session of a cookie, and renew it; None if it has ended or never was."""
        now, table = self.clock(), console_sessions
        is_it = (table.c.token_digest == _digest(token)) & (table.c.expires_at > now)
        row = (await self._database.fetch(select(table).where(is_it))).one_or_none()
        if row is None:
            return None
        expires_at = row.expires_at
        if expires_at - now < SESSION_S - _RENEW_S:
            expires_at = now + SESSION_S
            await self._database.execute(update(table).where(is_it).values(expires_at=expires_at))
        return StoredSession(token, row.key_digest, expires_at)

    async def rekey(self, session: StoredSession, key_digest: bytes) -> None:
        """Continue a session under the new secret of its key."""
        is_it = console_sessions.c.token_digest == _digest(session.token)
        await self._database.execute(update(console_sessions).where(is_it).values(key_digest=key_digest))

    async def close(self, session: StoredSession, visitor: Visitor | None = None) -> None:
        """End a session, in every replica. The visitor is None if the key is no longer accepted."""
        is_it = console_sessions.c.token_digest == _digest(session.token)
        async with self._database.write() as connection:
            await connection.execute(delete(console_sessions).where(is_it))
            if visitor is not None:
                await self._note(connection, "logout.succeeded", visitor)

    async def create_link(self, key_id: str) -> str | None:
        """Return the token of a link that signs in once, under a key; None if there is no such key."""
        token = secrets.token_urlsafe(32)
        async with self._database.write() as connection:
            query = select(api_keys.c.digest).where(api_keys.c.key_id == key_id, api_keys.c.revoked_at.is_(None))
            key_digest = await connection.scalar(query)
            if key_digest is None:
                return None
            row = {"token_digest": _digest(token), "key_digest": key_digest, "expires_at": self.clock() + LINK_S}
            await connection.execute(insert(console_links).values(row))
        return token

    async def use_link(self, token: str) -> bytes | None:
        """Use up a link; return the digest of its key, or None if the link is unknown, used or too old."""
        table = console_links
        statement = delete(table).where(table.c.token_digest == _digest(token))
        row = (await self._database.execute(statement.returning(table.c.key_digest, table.c.expires_at))).one_or_none()
        return None if row is None or row.expires_at <= self.clock() else bytes(row.key_digest)

    async def note_failure(self, address: str, change: int = 1) -> tuple[int, int]:
        """Count a failed sign-in; -1 takes one back.

        Return the failures of the last five minutes with it, from the address and from all addresses. Each of several
        at once gets its own number.
        """
        minute = int(self.clock() // 60)
        subjects = (address[:64], _EVERYWHERE)
        rows = [{"address": subject, "minute": minute, "num_failed": change} for subject in subjects]
        statement = self._database.upsert(console_failures, ["address", "minute"], adding=["num_failed"])
        table = console_failures
        query = (
            select(table.c.address, func.sum(table.c.num_failed))
            .where(table.c.address.in_(subjects))
            .where(table.c.minute >= int((self.clock() - FAILURES_S) // 60))
            .group_by(table.c.address)
        )
        async with self._database.write() as connection:
            await connection.execute(statement, rows)
            found = {row[0]: int(row[1]) for row in await connection.execute(query)}
        return found[address[:64]], found[_EVERYWHERE]

    async def note_refusal(self, address: str, code: str) -> None:
        """Append a refused sign-in to the audit log."""
        details = {"ip_address": address, "error_code": code}
        async with self._database.write() as connection:
            await append_entry(
                connection, "login.failed", Actor("session", address), address, details=details, clock=self.clock
            )

    async def sweep(self) -> int:
        """Delete ended sessions, links and failures; return the number of sessions and links."""
        now = self.clock()
        async with self._database.write() as connection:
            sessions = await connection.execute(delete(console_sessions).where(console_sessions.c.expires_at <= now))
            links = await connection.execute(delete(console_links).where(console_links.c.expires_at <= now))
            is_old = console_failures.c.minute < int((now - FAILURES_S) // 60)
            await connection.execute(delete(console_failures).where(is_old))
        return sessions.rowcount + links.rowcount

    async def _note(self, connection: AsyncConnection, event: str, visitor: Visitor) -> None:
        await append_entry(
            connection,
            event,
            Actor("session", visitor.key_id),
            visitor.key_id,
            account=visitor.account,
            details={"ip_address": visitor.address},
            clock=self.clock,
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
