"""A year of ten million requests is answered in a tenth of a second, since only sums are read."""

from collections.abc import Awaitable, Callable

import psutil
from sqlalchemy import insert

from deployments.state.database.connection import Database
from deployments.state.database.usage_tables import COUNTS, USAGE
from deployments.state.usage.reading import UsageFilter, UsageReader

DAY_S = 86_400
BEGIN = 1_735_689_600  # 2025-01-01.
NUM_DAYS, NUM_KEYS, NUM_MODELS = 365, 20, 3
REQUESTS_A_ROW = 457  # In 21,900 rows they are ten million.
MOST_S = 0.1
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


def _used_s() -> float:
    """Return the processor time of this process and its children, among them the database's server, in seconds."""
    times = [one.cpu_times() for one in (psutil.Process(), *psutil.Process().children(recursive=True))]
    return sum(one.user + one.system for one in times)


async def _taken_s(ask: Callable[[], Awaitable[object]]) -> float:
    """Return how long asking takes on a machine with nothing else to do: the processor time, as nothing waits."""
    await ask()
    before = _used_s()
    for _ in range(NUM_ROUNDS):
        await ask()
    return (_used_s() - before) / NUM_ROUNDS


async def test_a_year_of_ten_million_requests_is_read_in_a_tenth_of_a_second(database: Database) -> None:
    await _generate(database)
    reader, end = UsageReader(database), BEGIN + NUM_DAYS * DAY_S
    (total,) = await reader.totals("1d", BEGIN, end)
    assert total.num_requests == NUM_DAYS * NUM_KEYS * NUM_MODELS * REQUESTS_A_ROW >= 10_000_000
    assert len(await reader.buckets("1d", BEGIN, end, group_by=("model",))) == NUM_DAYS * NUM_MODELS
    mine = UsageFilter(accounts=("acct_1",))
    for ask in (
        lambda: reader.buckets("1d", BEGIN, end),
        lambda: reader.buckets("1d", BEGIN, end, group_by=("model",)),
        lambda: reader.buckets("1d", BEGIN, end, where=mine, group_by=("model", "key_id")),
        lambda: reader.totals("1d", BEGIN, end, group_by=("key_id",)),
    ):
        assert await _taken_s(ask) < MOST_S
