"""Account keys in a real database, made by many at once."""

import asyncio

import pytest
from sqlalchemy import func, select

from deployments.state.database.connection import Database, connect
from deployments.state.database.tables.service import account_keys
from deployments.state.encryption.sealing import SealBroken
from deployments.state.encryption.vault import Vault

MASTER = b"m" * 32


async def test_an_account_has_one_key_whoever_asks_first(database: Database, database_url: str) -> None:
    others = [await connect(database_url) for _ in range(3)]
    vaults = [Vault(each, MASTER) for each in [database, *others] for _ in range(3)]
    keys = await asyncio.gather(*(vault.account_key("acct") for vault in vaults))
    _, wrapped = keys[0].new_object("file-1")
    for key in keys:
        key.open_object("file-1", wrapped)
    async with database.read() as connection:
        assert await connection.scalar(select(func.count()).select_from(account_keys)) == 1
    for other in others:
        await other.close()


async def test_accounts_have_different_keys(database: Database) -> None:
    vault = Vault(database, MASTER, max_cached=1)
    _, wrapped = (await vault.account_key("one")).new_object("file-1")
    with pytest.raises(SealBroken):
        (await vault.account_key("two")).open_object("file-1", wrapped)
    (await vault.account_key("one")).open_object("file-1", wrapped)


async def test_another_master_key_opens_nothing(database: Database) -> None:
    await Vault(database, MASTER).account_key("acct")
    with pytest.raises(SealBroken):
        await Vault(database, b"n" * 32).account_key("acct")
