"""Whose work comes next in the queues that all accounts share, over real databases: the same for each of them."""

import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from sqlalchemy import Table, func, insert, select, text

from deployments.state.database.connection import Database
from deployments.state.database.queues import Lane, Places, Turns
from deployments.state.database.tables.content import vector_store_files
from deployments.state.database.tables.responses import response_jobs, webhook_deliveries
from deployments.state.database.tables.service import work_turns
from deployments.state.encryption.vault import Vault
from deployments.state.responses import background
from deployments.state.responses.background import BackgroundStore
from deployments.state.vector_stores import work
from deployments.state.vector_stores.files import VectorStoreFiles
from deployments.state.vector_stores.rows import NewStore, NewStoreFile
from deployments.state.vector_stores.store import VectorStores
from deployments.state.vector_stores.work import VectorStoreWork
from deployments.state.webhooks import queue
from deployments.state.webhooks.queue import DeliveryQueue, enqueue
from deployments.state.webhooks.rows import EVENT_TYPES
from deployments.state.webhooks.store import WebhookStore
from tests.contract.http.conftest import principal
from tests.contract.state.shelf import Shelf
from tests.contract.state.turns import turn

CHUNKING = {"type": "static", "static": {"max_chunk_size_tokens": 800, "chunk_overlap_tokens": 400}}


class Files:
    """Files to be indexed; a key is a lane."""

    def __init__(self, database: Database) -> None:
        self.shelf = Shelf(database)
        self.clock = self.shelf.clock
        self.stores = VectorStores(database, self.shelf.store.vault, self.clock)
        self.work = VectorStoreWork(self.stores)
        self.made: set[str] = set()

    async def add(self, account: str, lane: str) -> None:
        store_id = f"vs_{account}"
        if account not in self.made:
            self.made.add(account)
            await self.stores.create(NewStore(store_id, account, "model"), 10)
        file_id = (await self.shelf.add(account=account)).file_id
        new = NewStoreFile(file_id, "a.md", self.clock() + 3600, CHUNKING)
        who = principal(account=account, key_id=f"{account}/{lane}")
        await VectorStoreFiles(self.stores).attach(who, store_id, [new], 100)

    async def serve(self) -> str | None:
        claim = await self.work.claim(10, 1)
        if claim is None:
            return None
        (one,) = claim.files
        await self.work.complete(claim.run_id, claim.store.store_id, {one.file.file_id: 1})
        return one.principal.key_id


class Responses:
    """Background responses whose runner is gone; a key is a lane."""

    def __init__(self, database: Database) -> None:
        self.clock = Shelf(database).clock
        self.store = BackgroundStore(database, Vault(database, b"m" * 32), self.clock)
        self.count = 0

    async def add(self, account: str, lane: str) -> None:
        self.count += 1
        name = f"{self.count}"
        begun = {"events": [b"{}"], "expires_at": self.clock() + 3600, "lease_s": 0.0}
        job = {"key": f"{account}/{lane}"}
        await self.store.start(account, turn(name, status="queued"), job, key_id=job["key"], **begun)

    async def serve(self) -> str | None:
        claimed = await self.store.claim(1000)
        return None if claimed is None else claimed.job["key"]


class Webhooks:
    """Webhooks that are due; an endpoint is a lane."""

    def __init__(self, database: Database) -> None:
        vault = Vault(database, b"m" * 32)
        self.clock = Shelf(database).clock
        self.database = database
        self.store = WebhookStore(database, vault, self.clock)
        self.queue = DeliveryQueue(database, vault, self.clock)
        self.kinds: dict[str, str] = {}

    async def add(self, account: str, lane: str) -> None:
        name = f"{account}/{lane}"
        if name not in self.kinds:
            self.kinds[name] = EVENT_TYPES[len(self.kinds)]
            await self.store.create(account, name, "https://receiver.example/", (self.kinds[name],))
        async with self.database.write() as connection:
            await enqueue(connection, account, self.kinds[name], "object", self.clock())

    async def serve(self) -> str | None:
        for delivery in await self.queue.take(Places()):
            await self.queue.note_delivered(delivery)
            return delivery.endpoint.name
        return None


QUEUES = [Files, Responses, Webhooks]


@pytest.fixture(params=QUEUES)
def shared(request: pytest.FixtureRequest, database: Database) -> Any:
    """A queue that all accounts share, with nothing in it."""
    return request.param(database)


async def fill(shared: Any, *lanes: str) -> None:
    """Put something into each of these lanes, one after the other."""
    for lane in lanes:
        shared.clock.advance(1)
        await shared.add(*lane.split("/"))
    shared.clock.advance(1)


async def served(shared: Any) -> list[str]:
    return [lane for _ in range(20) if (lane := await shared.serve()) is not None]


async def test_accounts_take_turns_however_much_one_has_and_for_how_long(shared: Any) -> None:
    await fill(shared, *["a/1"] * 6, *["b/1"] * 2)
    assert [await shared.serve() for _ in range(3)] == ["a/1", "b/1", "a/1"]
    await fill(shared, "c/1", "d/1")
    assert await served(shared) == ["c/1", "d/1", "b/1", "a/1", "a/1", "a/1", "a/1"]


async def test_keys_and_endpoints_of_an_account_take_turns_among_themselves_only(shared: Any) -> None:
    await fill(shared, *["a/1"] * 3, *["a/2"] * 2, "b/1", "b/1")
    assert await served(shared) == ["a/1", "b/1", "a/2", "b/1", "a/1", "a/2", "a/1"]


async def test_new_keys_and_endpoints_win_no_turns(shared: Any) -> None:
    await fill(shared, "a/1", "b/1", "b/1", "a/2", "a/3")
    assert await served(shared) == ["a/1", "b/1", "a/2", "b/1", "a/3"]


async def test_what_is_remembered_of_turns_is_bounded(database: Database, monkeypatch) -> None:
    monkeypatch.setattr("deployments.state.database.queues._KEPT_TURNS", 5)
    turns = Turns("one", webhook_deliveries.c.account, webhook_deliveries.c.endpoint_id, webhook_deliveries.c.due_at)
    for number in range(20):
        async with database.write() as connection:
            await turns.note_served(connection, database, [Lane(f"acct_{number}", "lane", {})])
    async with database.read() as connection:
        kept = (await connection.execute(select(func.count(), func.min(work_turns.c.turn)))).one()
    assert tuple(kept) == (10, 16)


BACKLOG = 4_000


def file_row(number: int, lane: str) -> dict[str, Any]:
    row = {"store_id": "vs", "file_id": f"{lane}-{number}", "status": "in_progress", "run_id": "", "num_claims": 0}
    times = {"created_at": number, "expires_at": 1e12, "lease_until": 0.0}
    return row | times | {"key_id": lane, "usage_bytes": 0, "principal": {}, "wrapped_key": b"", "sealed_record": b""}


def job_row(number: int, lane: str) -> dict[str, Any]:
    row = {"response_id": f"{lane}-{number}", "key_id": lane, "epoch": 1, "lease_until": number}
    return row | {"is_cancelled": False, "num_events": 0, "sealed_job": b""}


def delivery_row(number: int, lane: str) -> dict[str, Any]:
    row = {"event_id": f"{lane}-{number}", "endpoint_id": lane, "type": "x", "object_id": "x"}
    return row | {"created_at": 0.0, "due_at": number, "num_tries": 0}


@pytest.mark.parametrize(
    ("table", "row", "turns", "age"),
    [
        (vector_store_files, file_row, work._FILE_TURNS, vector_store_files.c.lease_until),
        (response_jobs, job_row, background._TURNS, response_jobs.c.lease_until),
        (webhook_deliveries, delivery_row, queue._TURNS, webhook_deliveries.c.due_at),
    ],
    ids=["files", "responses", "webhooks"],
)
async def test_choice_reads_few_rows_however_many_one_account_has(
    database: Database, table: Table, row: Callable[[int, str], dict[str, Any]], turns: Turns, age: Any
) -> None:
    rows = [row(number, f"big-{number % 20}") | {"account": "big"} for number in range(BACKLOG)]
    rows += [row(BACKLOG + number, f"small-{number}") | {"account": f"small-{number}"} for number in range(5)]
    async with database.write() as connection:
        await connection.execute(insert(table), rows)
    async with database.engine.connect() as connection:
        await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("ANALYZE"))
    async with database.read() as connection:
        assert len(await turns.lanes(connection, age <= 1e9)) == 25
        statement = turns.query(age <= 1e9, age).compile(
            connection.sync_connection, compile_kwargs={"literal_binds": True}
        )
        explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN (ANALYZE, FORMAT JSON)"
        told = (await connection.exec_driver_sql(f"{explain} {statement}")).all()
    if database.is_sqlite:
        steps = [one[3] for one in told if re.search(rf"\b{table.name}\b", one[3])]
        assert steps
        assert all(f"INDEX ix_{table.name}_turns" in step for step in steps)
    else:
        plan = orjson.loads(told[0][0]) if isinstance(told[0][0], str) else told[0][0]
        assert 0 < rows_read(plan[0]["Plan"], table.name) < 500


def rows_read(plan: dict[str, Any], table: str) -> float:
    """Return how many rows of a table a plan of PostgreSQL has read."""
    below = sum(rows_read(one, table) for one in plan.get("Plans", ()))
    if plan.get("Relation Name") != table:
        return below
    return below + plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))


def test_an_account_gets_a_place_only_while_it_holds_fewer_than_are_free() -> None:
    def admitted(places: Places, *accounts: str) -> str:
        return "".join(lane.account for lane in places.admit([Lane(one, "", {}) for one in accounts]))

    assert admitted(Places(room=8), *"aaaaaaaa") == "aaaa"
    assert admitted(Places({"a": 4}, 4), *"aab") == "b"
    assert admitted(Places({"a": 4}, 4), *"bbbccd") == "bbcd"
    assert admitted(Places({"a": 4, "b": 2, "c": 1}, 1), *"abcd") == "d"
    assert admitted(Places({"a": 4}, 0), *"b") == ""
