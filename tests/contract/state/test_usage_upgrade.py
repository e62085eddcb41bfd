"""The usage of the version before is carried over: as days where the request log no longer reaches, else from it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from deployments.state.database import connection as database_module
from deployments.state.database.connection import connect
from deployments.state.usage.reading import UsageFilter, UsageReader
from deployments.state.usage.store import UsageStore
from tests.contract.state.records import NOON

BEFORE = "v0012_service_tiers"
LOGGED = (
    "INSERT INTO request_log (record_id, request_id, at, key_id, account, method, route, model, status, stream, "
    "prompt_tokens, completion_tokens, cached_tokens, total_s) VALUES ('req_{n}', 'req_{n}', {at}, 'key_1', 'acme', "
    "'POST', '/v1/chat/completions', 'm', {status}, {false}, {prompt}, 0, 0, 1.0)"
)
DAY = "INSERT INTO usage VALUES ('key_1', '{day}', '{model}', 'acme', {counts})"


async def test_no_request_is_lost_or_counted_twice(empty_database_url: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(database_module.__file__).parent / "migrations"))

    def make(connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, BEFORE)
        false = "0" if "sqlite" in empty_database_url else "FALSE"
        for statement in (
            LOGGED.format(n=1, at=NOON, status=200, prompt=10, false=false),
            LOGGED.format(n=2, at=NOON, status=404, prompt=0, false=false),
            DAY.format(day="2023-11-14", model="m", counts="7, 1, 70, 7, 3, 2"),
            DAY.format(day="2023-11-15", model="m", counts="5, 0, 50, 5, 0, 0"),
            DAY.format(day="2023-11-15", model="", counts="1, 1, 0, 0, 0, 0"),
        ):
            connection.execute(text(statement))

    engine = create_async_engine(empty_database_url)
    async with engine.begin() as connection:
        await connection.run_sync(make)
    await engine.dispose()

    database = await connect(empty_database_url)
    assert await UsageStore(database).catch_up() == 2
    rows = [(row.day.day, row.model, row.num_requests, row.num_errors, row.prompt_tokens, row.discounted_tokens)
            for row in await UsageStore(database).by_day()]  # fmt: skip
    assert rows == [(15, "", 1, 1, 0, 0), (15, "m", 5, 0, 50, 0), (14, "m", 7, 1, 70, 2)]
    chats = UsageFilter(operations=("chat",), has_run=True)
    (total,) = await UsageReader(database).totals("1d", 0, 1e11, where=chats)
    assert (total.num_requests, total.prompt_tokens, total.cached_tokens) == (12, 120, 3)
    (hour,) = await UsageReader(database).totals("1h", NOON, NOON + 1)
    assert (hour.num_requests, hour.prompt_tokens) == (2, 10)
    await database.close()
