"""Containers over real databases: how many an account may have."""

import asyncio

from deployments.state.containers import ContainerStore, StoredContainer, TooManyContainers
from deployments.state.database.connection import Database
from tests.contract.state.shelf import Shelf


async def test_containers_that_are_added_side_by_side_are_no_more_than_an_account_may_have(database: Database) -> None:
    store = ContainerStore(database, Shelf(database).store.vault)

    def named(container_id: str) -> StoredContainer:
        now = store.clock()
        return StoredContainer(container_id, "acct", "", "1g", now, now, 1200.0, is_running=True, place={})

    made = await asyncio.gather(*(store.add(named(f"cntr_{n}"), 3) for n in range(9)), return_exceptions=True)
    assert sorted(isinstance(one, TooManyContainers) for one in made) == [False] * 3 + [True] * 6
    assert await store.count_running("acct") == 3
