"""The keys of accounts: created at an account's first use, and stored in the database, wrapped by the master key.

An account's tokens are content that clients keep for the service, sealed: only the service can read and create them.
"""

import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.state.database.connection import Database
from deployments.state.database.tables.service import account_keys
from deployments.state.encryption.sealing import AccountKey, SealBroken, unwrap_account_key, wrap_account_key

_MAX_CACHED = 1_000


class Vault:
    """The account keys of one database. Any number of processes may hold one over the same database."""

    def __init__(self, database: Database, master_key: bytes, max_cached: int = _MAX_CACHED) -> None:
        self._database = database
        self._master_key = master_key
        self._max_cached = max_cached
        self._cache: OrderedDict[str, AccountKey] = OrderedDict()

    async def account_key(self, account: str) -> AccountKey:
        """Return the account's key, created at its first use. Processes that ask at the same time get the same key.

        Raises:
            SealBroken: the key was wrapped by a master key other than this service's.
        """
        cached = self._cache.get(account)
        if cached is not None:
            self._cache.move_to_end(account)
            return cached
        wrapped = await self._wrapped_key(account) or await self._create(account)
        key = self._cache[account] = unwrap_account_key(self._master_key, account, wrapped)
        if len(self._cache) > self._max_cached:
            self._cache.popitem(last=False)
        return key

    async def _wrapped_key(self, account: str) -> bytes | None:
        query = select(account_keys.c.wrapped_key).where(account_keys.c.account == account)
        wrapped: bytes | None = (await self._database.fetch(query)).scalar()
        return wrapped

    async def _create(self, account: str) -> bytes:
        """Add a key, unless another process just has; return the wrapped key in the database."""
        _, wrapped = wrap_account_key(self._master_key, account)
        row = {"account": account, "wrapped_key": wrapped, "created_at": time.time()}
        await self._database.execute(self._database.insert_or_ignore(account_keys).values(row))
        kept = await self._wrapped_key(account)
        assert kept is not None
        return kept


async def lock_account(connection: AsyncConnection, account: str) -> None:
    """Lock an account until the caller's transaction ends, so that it can count before it adds."""
    await connection.execute(select(account_keys.c.account).where(account_keys.c.account == account).with_for_update())


_ID_BYTES = 16


class AccountTokens:
    """Seals texts of one account into tokens and opens them again, on any replica, while the account's key exists."""

    def __init__(self, key: AccountKey) -> None:
        self._key = key

    def seal(self, text: str) -> str:
        """Return a token that holds the text."""
        token_id = secrets.token_bytes(_ID_BYTES)
        key, wrapped = self._key.new_object(token_id.hex())
        sealed = key.seal(text.encode(), b"token")
        return urlsafe_b64encode(token_id + bytes([len(wrapped)]) + wrapped + sealed).decode()

    def open(self, token: str) -> str | None:
        """Return the text of a token, None if it was not sealed for this account."""
        try:
            raw = urlsafe_b64decode(token)
            end = _ID_BYTES + 1 + raw[_ID_BYTES]
            key = self._key.open_object(raw[:_ID_BYTES].hex(), raw[_ID_BYTES + 1 : end])
            return key.open(raw[end:], b"token").decode()
        except (SealBroken, ValueError, IndexError):
            return None


class SealedTokens:
    """The tokens of every account of one vault."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def of(self, account: str) -> AccountTokens:
        """Return the tokens of an account."""
        return AccountTokens(await self._vault.account_key(account))
