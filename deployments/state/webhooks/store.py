"""The webhook endpoints of all accounts. An endpoint of another account does not exist."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.audit_log import SERVICE, Actor, append_entry
from deployments.state.database.connection import Database
from deployments.state.database.queries import Page, clean_id, fetch_page, one_row
from deployments.state.database.tables.responses import webhook_deliveries, webhook_endpoints
from deployments.state.encryption.vault import Vault, lock_account
from deployments.state.webhooks.rows import (
    KEPT_SECRET_S,
    MAX_ENDPOINTS,
    Endpoint,
    EndpointMissing,
    TooManyEndpoints,
    endpoint_of,
    new_secret,
    seal_previous,
    seal_record,
    seal_secret,
)


class WebhookStore:
    """The endpoints of one database. Any number of processes may hold one.

    The audit log has every change under the actor that it is `by`, without names and addresses.
    """

    def __init__(self, database: Database, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._vault = vault
        self._clock = clock

    async def create(
        self, account: str, name: str, url: str, event_types: Sequence[str], *, by: Actor = SERVICE
    ) -> Endpoint:
        """Create an endpoint, which gets events from now on; return it.

        Raises:
            TooManyEndpoints: the account must delete another one first.
        """
        endpoint_id, now = f"whe_{secrets.token_hex(16)}", self._clock()
        account_key = await self._vault.account_key(account)
        key, wrapped = account_key.new_object(endpoint_id)
        row = {
            "endpoint_id": endpoint_id,
            "account": account,
            "event_types": list(event_types),
            "created_at": now,
            "updated_at": now,
            "failing_since": None,
            "is_disabled": False,
            "wrapped_key": wrapped,
            "sealed_record": seal_record(key, name, url),
            "sealed_secret": seal_secret(key, new_secret()),
            "sealed_previous": None,
            "previous_until": None,
        }
        count = select(func.count()).where(webhook_endpoints.c.account == account)
        async with self._database.write() as connection:
            await lock_account(connection, account)
            if (await connection.scalar(count) or 0) >= MAX_ENDPOINTS:
                raise TooManyEndpoints
            await connection.execute(insert(webhook_endpoints).values(row))
            await self._note(connection, "created", by, row, {"event_types": list(event_types)})
        return endpoint_of(row, account_key, now)

    async def find(self, account: str, endpoint_id: str) -> Endpoint:
        """Return one endpoint of an account.

        Raises:
            EndpointMissing: the account has none with this id.
        """
        async with self._database.read() as connection:
            row = await _row(connection, account, endpoint_id)
        return await self._to_endpoint(row)

    async def list_endpoints(self, account: str, limit: int, after: str | None = None) -> tuple[list[Endpoint], bool]:
        """Return a page of an account's endpoints, newest first, and whether there are more.

        Raises:
            EndpointMissing: `after` is no endpoint of this account.
        """
        query = select(webhook_endpoints).where(webhook_endpoints.c.account == account)
        async with self._database.read() as connection:
            rows, has_more = await fetch_page(
                connection, query, webhook_endpoints.c.endpoint_id, Page(limit, after=after), EndpointMissing
            )
        return [await self._to_endpoint(row) for row in rows], has_more

    async def update(
        self,
        account: str,
        endpoint_id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        event_types: Sequence[str] | None = None,
        by: Actor = SERVICE,
    ) -> Endpoint:
        """Change the given fields of an endpoint, and enable it again; return it.

        Raises:
            EndpointMissing: the account has none with this id.
        """
        account_key, now = await self._vault.account_key(account), self._clock()
        async with self._database.write() as connection:
            row = await _row(connection, account, endpoint_id, is_locked=True)
            key = account_key.open_object(row["endpoint_id"], row["wrapped_key"])
            known = endpoint_of(row, account_key, now)
            new_name, new_url = known.name if name is None else name, known.url if url is None else url
            new_types = known.event_types if event_types is None else tuple(event_types)
            same = (new_name, new_url, new_types) == (known.name, known.url, known.event_types)
            values = {
                "sealed_record": seal_record(key, new_name, new_url),
                "event_types": list(new_types),
                "updated_at": row["updated_at"] if same and not known.is_disabled else now,
                "is_disabled": False,
                "failing_since": None,
            }
            await _write(connection, endpoint_id, values)
            given = {"name": name, "url": url, "event_types": event_types}
            await self._note(
                connection, "updated", by, row, {"fields": [one for one in given if given[one] is not None]}
            )
        return await self._to_endpoint({**row, **values})

    async def rotate(self, account: str, endpoint_id: str, *, keeps_previous: bool, by: Actor = SERVICE) -> Endpoint:
        """Give an endpoint a new secret; with `keeps_previous`, the old secret signs for another day too. Return it.

        Raises:
            EndpointMissing: the account has none with this id.
        """
        account_key, now = await self._vault.account_key(account), self._clock()
        async with self._database.write() as connection:
            row = await _row(connection, account, endpoint_id, is_locked=True)
            key = account_key.open_object(row["endpoint_id"], row["wrapped_key"])
            known = endpoint_of(row, account_key, now)
            values = {
                "sealed_secret": seal_secret(key, new_secret()),
                "sealed_previous": seal_previous(key, known.secret) if keeps_previous else None,
                "previous_until": now + KEPT_SECRET_S if keeps_previous else None,
                "updated_at": now,
            }
            await _write(connection, endpoint_id, values)
            await self._note(connection, "updated", by, row, {"fields": ["signing_secret"]})
        return await self._to_endpoint({**row, **values})

    async def delete(self, account: str, endpoint_id: str, *, by: Actor = SERVICE) -> None:
        """Delete an endpoint, and the deliveries that it has not acknowledged.

        Raises:
            EndpointMissing: the account has none with this id.
        """
        async with self._database.write() as connection:
            row = await _row(connection, account, endpoint_id, is_locked=True)
            of_endpoint = webhook_deliveries.c.endpoint_id == row["endpoint_id"]
            await connection.execute(delete(webhook_deliveries).where(of_endpoint))
            is_it = webhook_endpoints.c.endpoint_id == row["endpoint_id"]
            await connection.execute(delete(webhook_endpoints).where(is_it))
            await self._note(connection, "deleted", by, row)

    async def _note(
        self,
        connection: AsyncConnection,
        event: str,
        by: Actor,
        row: Mapping[str, Any],
        details: Mapping[str, Any] | None = None,
    ) -> None:
        more = {"account": row["account"], "details": details, "clock": self._clock}
        await append_entry(connection, f"webhook_endpoint.{event}", by, row["endpoint_id"], **more)

    async def _to_endpoint(self, row: dict[str, Any]) -> Endpoint:
        return endpoint_of(row, await self._vault.account_key(row["account"]), self._clock())


async def _row(
    connection: AsyncConnection, account: str, endpoint_id: str, *, is_locked: bool = False
) -> dict[str, Any]:
    query = select(webhook_endpoints).where(
        webhook_endpoints.c.endpoint_id == clean_id(endpoint_id), webhook_endpoints.c.account == account
    )
    return await one_row(connection, query.with_for_update() if is_locked else query, EndpointMissing())


async def _write(connection: AsyncConnection, endpoint_id: str, values: dict[str, Any]) -> None:
    is_it = webhook_endpoints.c.endpoint_id == endpoint_id
    await connection.execute(update(webhook_endpoints).where(is_it).values(values))
