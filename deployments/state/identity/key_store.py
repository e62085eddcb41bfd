"""The API keys of one database: issued, listed, changed, rotated, revoked.

A secret is returned once, when it is created, and stored only as a keyed digest. Every change takes the next revision
number and appends to the audit log, in its own transaction. Running gatekeepers follow that number, and so learn of
changes by any process.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.audit_log import SERVICE, Actor, append_entry
from deployments.state.database.connection import Database
from deployments.state.database.postgres import NoPrimary
from deployments.state.database.queries import clean_id, id_groups, one_row
from deployments.state.database.tables.service import api_keys, regions, revisions
from deployments.state.identity.keys import (
    PREFIX,
    Account,
    ApiKey,
    KeyChange,
    NewKey,
    StoredKey,
    create_secret,
    digest_of,
)
from deployments.state.identity.tiers import Tiers

MAX_OVERLAP_S = 30 * 86_400.0
MAX_LISTED = 1_000
REVOKED_COUNTS_S = 60.0
"""A revoked key still counts as one of its account for as long as its requests of the last minute do. Otherwise an
account could use up a key's limits, revoke it and go on with a new one, again and again."""
MAX_BEHIND_S = 10.0
"""A standby that is further behind is not asked for keys. Regions sign in every five seconds, which shows its delay."""


class KeyRefused(ValueError):
    """The key cannot be created or changed like that; the message is the reason, `param` the field at fault, if any."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class KeyNotFound(LookupError):
    """There is no key with this id."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"There is no API key {key_id!r}.")


class KeyStore:
    """The keys of one database. The audit log has every change under the actor that it is `by`.

    An account begins with its first key.
    """

    def __init__(
        self, database: Database, pepper: bytes, tiers: Tiers | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self._pepper = pepper
        self._tiers = tiers or Tiers()
        self._clock = clock

    async def create(self, new: NewKey, *, by: Actor = SERVICE, max_keys: int | None = None) -> tuple[ApiKey, str]:
        """Issue a key; return it and its secret, which is not shown again.

        Raises:
            KeyRefused: there is no such tier, the key needs limits of its own, it expires in the past, or the account
                has `max_keys` keys, revoked ones counted for another minute.
        """
        self._check_tier(new.tier)
        self._check(new.tier, new.requests_per_minute, new.tokens_per_minute, new.expires_at)
        secret = create_secret()
        now = self._clock()
        async with self._database.write() as connection:
            row = {
                **new.model_dump(mode="json"),
                **self._form_of(secret),
                "key_id": f"key_{secrets.token_hex(12)}",
                "created_at": now,
                "revision": await _next_revision(connection),
            }
            of_account = select(api_keys.c.revoked_at).where(api_keys.c.account == new.account)
            if max_keys is not None:
                revoked_at, since = api_keys.c.revoked_at, now - REVOKED_COUNTS_S
                counted = of_account.where(or_(revoked_at.is_(None), revoked_at > since))
                await _check_room(connection, counted, max_keys)
            if (await connection.execute(of_account.limit(1))).first() is None:
                await append_entry(
                    connection, "project.created", by, new.account, account=new.account, clock=self._clock
                )
            await connection.execute(insert(api_keys).values(row))
            stored = await _row_of(connection, row["key_id"])
            await self._note(connection, "api_key.created", by, stored, new.model_dump(mode="json"))
        return ApiKey.from_row(stored, self._tiers), secret

    async def list_keys(self, account: str | None = None, *, include_revoked: bool = False) -> list[ApiKey]:
        """Return the keys, newest first, at most MAX_LISTED."""
        query = select(api_keys).order_by(api_keys.c.created_at.desc(), api_keys.c.key_id).limit(MAX_LISTED)
        if account is not None:
            query = query.where(api_keys.c.account == account)
        if not include_revoked:
            query = query.where(api_keys.c.revoked_at.is_(None))
        rows = (await self._database.fetch(query)).mappings().all()
        return [ApiKey.from_row(dict(row), self._tiers) for row in rows]

    async def list_accounts(self, limit: int, *, named: str = "", after: str = "") -> tuple[list[Account], bool]:
        """Return at most `limit` accounts by name, and whether there are more.

        They have `named` in their name, in upper or lower case, and come after the account `after`.
        """
        keys = api_keys.c
        num_keys = func.count(case((keys.revoked_at.is_(None), 1)))
        query = (
            select(keys.account, num_keys, func.count() - num_keys, func.min(keys.created_at))
            .where(keys.account > clean_id(after), keys.account.icontains(clean_id(named), autoescape=True))
            .group_by(keys.account)
            .order_by(keys.account)
            .limit(limit + 1)
        )
        rows = (await self._database.fetch(query)).all()
        return [Account(*row) for row in rows[:limit]], len(rows) > limit

    async def show(self, key_id: str) -> ApiKey:
        """Return one key, revoked or not.

        Raises:
            KeyNotFound: there is none with this id.
        """
        async with self._database.read() as connection:
            return ApiKey.from_row(await _row_of(connection, key_id), self._tiers)

    async def find_all(self, key_ids: Sequence[str]) -> dict[str, ApiKey]:
        """Return the keys among `key_ids` by their ids, revoked or not."""
        found: dict[str, ApiKey] = {}
        for ids in id_groups(key_ids):
            rows = await self._database.fetch(select(api_keys).where(api_keys.c.key_id.in_(ids)))
            keys = [ApiKey.from_row(dict(row), self._tiers) for row in rows.mappings()]
            found |= {key.key_id: key for key in keys}
        return found

    async def limit(self, key_id: str, change: KeyChange, *, by: Actor = SERVICE) -> ApiKey:
        """Change the fields that are set in `change`; return the key.

        Raises:
            KeyNotFound: there is none with this id.
            KeyRefused: the key is revoked, no field is set, or the changed key would be invalid.
        """
        values = change.model_dump(mode="json", include=set(KeyChange.model_fields) & change.model_fields_set)
        if not values:
            raise KeyRefused("There is nothing to change.")
        async with self._database.write() as connection:
            row = await self._living_row(connection, key_id)
            outcome = {**row, **values}
            if "tier" in values:  # Otherwise a key may stay in a tier that is no longer configured.
                self._check_tier(outcome["tier"])
            self._check(
                outcome["tier"], outcome["requests_per_minute"], outcome["tokens_per_minute"], values.get("expires_at")
            )
            if row["is_admin"] and (outcome["operations"] or outcome["models"]):
                raise KeyRefused("An admin key has no operation or model scopes.")
            await self._note(connection, "api_key.updated", by, row, values)
            return await self._update(connection, key_id, values)

    async def rotate(self, key_id: str, overlap_s: float = 0.0, *, by: Actor = SERVICE) -> tuple[ApiKey, str]:
        """Give the key a new secret, valid at once; the old one is accepted for another `overlap_s` seconds.

        Raises:
            KeyNotFound: there is none with this id.
            KeyRefused: the key is revoked, or the overlap is out of bounds.
        """
        if not 0 <= overlap_s <= MAX_OVERLAP_S:
            raise KeyRefused(f"The overlap must be between 0 and {MAX_OVERLAP_S:.0f} seconds.")
        secret = create_secret()
        now = self._clock()
        async with self._database.write() as connection:
            row = await self._living_row(connection, key_id)
            values: dict[str, Any] = {**self._form_of(secret), "rotated_at": now}
            values["previous_digest"] = row["digest"] if overlap_s else None
            values["previous_expires_at"] = now + overlap_s if overlap_s else None
            await self._note(connection, "api_key.updated", by, row, {"is_rotated": True, "overlap_s": overlap_s})
            return await self._update(connection, key_id, values), secret

    async def revoke(self, key_id: str, *, by: Actor = SERVICE) -> ApiKey:
        """Revoke the key for good; revoking it again changes nothing.

        Raises:
            KeyNotFound: there is none with this id.
        """
        async with self._database.write() as connection:
            row = await _row_of(connection, key_id, for_update=True)
            if row["revoked_at"] is not None:
                return ApiKey.from_row(row, self._tiers)
            await self._note(connection, "api_key.deleted", by, row, {})
            return await self._update(connection, key_id, {"revoked_at": self._clock()})

    async def changes_since(self, revision: int) -> tuple[int, list[StoredKey]]:
        """Return the newest revision and every key changed after `revision`, in order of their changes."""
        query = _with_revision(api_keys.c.revision > revision).order_by(api_keys.c.revision)
        return self._opened((await self._database.fetch(query)).mappings().all(), revision)

    async def find(self, digest: bytes) -> tuple[int, StoredKey | None]:
        """Return the newest revision, and the key with this digest, current or previous; None if there is none.

        While the database has no primary, a standby is read, unless it is too far behind to know every revocation.
        """
        query = _with_revision(or_(api_keys.c.digest == digest, api_keys.c.previous_digest == digest))
        is_stale = self._database.has_standby and not self._database.has_primary
        async with self._database.read_stale() if is_stale else self._database.read() as connection:
            if is_stale:
                seen_at = await connection.scalar(select(func.max(regions.c.seen_at)))
                if self._clock() - (seen_at or 0.0) > MAX_BEHIND_S:
                    raise NoPrimary("the standby is too far behind to tell which keys are revoked")
            revision, found = self._opened((await connection.execute(query)).mappings().all(), 0)
        return revision, next(iter(found), None)

    def _opened(self, rows: Sequence[Mapping[Any, Any]], default: int) -> tuple[int, list[StoredKey]]:
        """Return the newest revision, or `default` without rows, and the keys in the rows of `_with_revision`."""
        keys = [StoredKey.from_row(dict(row), self._tiers) for row in rows if row["key_id"] is not None]
        return (rows[0]["newest"] if rows else default), keys

    async def _living_row(self, connection: AsyncConnection, key_id: str) -> dict[str, Any]:
        row = await _row_of(connection, key_id, for_update=True)
        if row["revoked_at"] is not None:
            raise KeyRefused(f"The API key {key_id} is revoked: create a new one.")
        return row

    async def _note(
        self, connection: AsyncConnection, event: str, by: Actor, row: Mapping[str, Any], details: Mapping[str, Any]
    ) -> None:
        more = {"account": row["account"], "details": details, "clock": self._clock}
        await append_entry(connection, event, by, row["key_id"], **more)

    async def _update(self, connection: AsyncConnection, key_id: str, values: Mapping[str, Any]) -> ApiKey:
        values = {**values, "revision": await _next_revision(connection)}
        await connection.execute(update(api_keys).where(api_keys.c.key_id == key_id).values(values))
        return ApiKey.from_row(await _row_of(connection, key_id), self._tiers)

    def _form_of(self, secret: str) -> dict[str, Any]:
        shown = len(PREFIX) + 3
        return {"digest": digest_of(secret, self._pepper), "prefix": secret[:shown], "last_four": secret[-4:]}

    def _check_tier(self, tier: str) -> None:
        if tier not in self._tiers.names:
            known = ", ".join(self._tiers.names)
            raise KeyRefused(f"There is no tier '{tier}' in the configuration. Its tiers are: {known}.", "tier")

    def _check(self, tier: str, requests: int | None, tokens: int | None, expires_at: float | None) -> None:
        limits = self._tiers.of(tier)
        for name, value, default in (
            ("requests_per_minute", requests, limits.requests_per_minute),
            ("tokens_per_minute", tokens, limits.tokens_per_minute),
        ):
            if value is None and default is None:
                raise KeyRefused(f"A key of the {tier} tier needs {name} of its own.")
        if expires_at is not None and expires_at <= self._clock():
            raise KeyRefused("expires_at is in the past; to end a key now, revoke it.")


def _with_revision(condition: ColumnElement[bool]) -> Select[Any]:
    """Return the query for the newest revision, with each key of the condition; with nulls if there is none."""
    both = revisions.outerjoin(api_keys, condition)
    return select(revisions.c.value.label("newest"), api_keys).select_from(both).where(revisions.c.name == "api_keys")


async def _row_of(connection: AsyncConnection, key_id: str, *, for_update: bool = False) -> dict[str, Any]:
    query = select(api_keys).where(api_keys.c.key_id == key_id)
    if for_update:
        query = query.with_for_update()
    if "\0" in key_id:
        raise KeyNotFound(key_id)
    return await one_row(connection, query, KeyNotFound(key_id))


async def _check_room(connection: AsyncConnection, counted: Select[Any], max_keys: int) -> None:
    """Check that there are fewer than `max_keys` keys; the revision's row is locked, so that none is created beside."""
    if (await connection.scalar(select(func.count()).select_from(counted.subquery())) or 0) >= max_keys:
        raise KeyRefused(
            f"This account has {max_keys} keys, which is the limit of its tier. Revoke one that is no longer used and "
            "wait a minute, or ask the operator for another."
        )


async def _next_revision(connection: AsyncConnection) -> int:
    """Return the next revision; its row stays locked until the transaction ends, so revisions appear in order."""
    statement = update(revisions).where(revisions.c.name == "api_keys").values(value=revisions.c.value + 1)
    return int((await connection.execute(statement.returning(revisions.c.value))).scalar_one())
