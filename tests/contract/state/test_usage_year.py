"""A year of ten million requests is read from the sums of its days, which the database adds up as they lie.

How long that takes at full scale is measured by `python -m tests.tools.bench --scenario usage`, on a quiet machine:
seconds are not compared here, where neighbours double them, but what is read with what is read beside it.
"""

import time
from collections.abc import Awaitable, Callable

from sqlalchemy import insert, select

from deployments.state.database.connection import Database
from deployments.state.database.tables.usage import COUNTS, USAGE
from deployments.state.usage.reading import UsageFilter, UsageReader
from tests.databases import more_on_postgresql

DAY_S = 86_400
BEGIN = 1_735_689_600  # 2025-01-01.
NUM_DAYS, NUM_KEYS, NUM_MODELS = 365, 20, 3
REQUESTS_A_ROW = 457  # In 21,900 rows they are ten million.
NUM_ROUNDS = 12


async def _generate(database: Database) -> None:
    table = USAGE["1d"]
    rows = [
        {
            "start": BEGIN + day * DAY_S,
            "account": f"acct_{key % 5}",
            "key_id": f"key_{key}",
            "model": f"demo/model-{model}",
            "operation": "chat",
            "is_batch": False,
            "service_tier": "",
            **dict.fromkeys(COUNTS, 1),
            "num_requests": REQUESTS_A_ROW,
        }
        for day in range(NUM_DAYS)
        for key in range(NUM_KEYS)
        for model in range(NUM_MODELS)
    ]
    async with database.write() as connection:
        for first in range(0, len(rows), 5_000):
            await connection.execute(insert(table), rows[first : first + 5_000])


async def _taken_s(*asks: Callable[[], Awaitable[object]]) -> list[float]:
    """Return this process's least processor time of each question, in seconds; a garbage collection is in none of them.

    SQLite works in this process; of PostgreSQL it is the time for what the server hands over.
    """
    taken = [float("inf") for _ in asks]
    for _ in range(NUM_ROUNDS):  # Turns give all of them the same load.
        for place, ask in enumerate(asks):
            before = time.process_time()
            await ask()
            taken[place] = min(taken[place], time.process_time() - before)
    return taken


@more_on_postgresql
async def test_a_year_is_added_up_in_half_the_time_of_fetching_its_days(database: Database) -> None:
    await _generate(database)
    reader, end = UsageReader(database), BEGIN + NUM_DAYS * DAY_S
    (total,) = await reader.totals("1d", BEGIN, end)
    assert total.num_requests == NUM_DAYS * NUM_KEYS * NUM_MODELS * REQUESTS_A_ROW >= 10_000_000
    assert len(await reader.buckets("1d", BEGIN, end, group_by=("model",))) == NUM_DAYS * NUM_MODELS
    mine = UsageFilter(accounts=("acct_1",))

    async def fetch_days() -> None:
        async with database.read() as connection:
            (await connection.execute(select(USAGE["1d"]))).all()

    fetched, *taken = await _taken_s(
        fetch_days,
        lambda: reader.buckets("1d", BEGIN, end),
        lambda: reader.buckets("1d", BEGIN, end, group_by=("model",)),
        lambda: reader.buckets("1d", BEGIN, end, where=mine, group_by=("model", "key_id")),
        lambda: reader.totals("1d", BEGIN, end, group_by=("key_id",)),
    )
    assert max(taken) < fetched / 2
