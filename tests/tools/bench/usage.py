"""How quickly the usage of a year of ten million requests is read over HTTP, over SQLite and over PostgreSQL.

The sums are those that `rollups` adds for each request, as far as they are still kept today. Older requests than those
whose hours are kept stand for `WEIGHT` each. The application, its routes and the databases are real; between the
client and the application there is no socket.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx2
import numpy as np
import psutil
from sqlalchemy import insert, text

from deployments.state.database.connection import Database, connect
from deployments.state.database.tables.usage import LATENCY, USAGE, Width, vector_store_bytes
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.rollups import KEPT_S, Change, rows_of, start_of
from serve_app.schemas.usage import MAX_BUCKETS, MAX_LATENCY_BUCKETS
from tests.contract.state.postgres import PostgresServer
from tests.twins.gatekeeper import TestClock

COLUMNS = ("database", "route", "buckets", "group_by", "results", "p50 ms", "p95 ms", "cpu ms", "answer kB")
NUM_REQUESTS = 10_000_000
NUM_DAYS = 365
DAY_S = 86_400
NUM_ACCOUNTS, KEYS_OF_ACCOUNT = 10, 4
WEIGHT = 4
TEXT = ("chat", "completions", "responses")
MODELS = tuple(f"demo/model-{number}" for number in range(4))
ADMIN = "sk-manta-admin-0123456789abcdefghijklmnopqrst"
KINDS = (
    "completions",
    "embeddings",
    "moderations",
    "vector_stores",
    "code_interpreter_sessions",
    "file_search_calls",
    "web_search_calls",
)
GROUPS = ("", "model", "project_id", "api_key_id", "model batch service_tier")


@dataclass(frozen=True)
class Question:
    """What is asked of a route: the periods, of the given width and as many as it allows, by group."""

    route: str
    width: Width
    group_by: str
    account: str = ""

    @property
    def num_buckets(self) -> int:
        return (MAX_LATENCY_BUCKETS if self.route == "latency" else MAX_BUCKETS)[self.width]

    def params(self, now: float) -> dict[str, Any]:
        num = self.num_buckets
        start = start_of(now, self.width) - (num - 1) * {"1m": 60, "1h": 3_600, "1d": DAY_S}[self.width]
        params = {"start_time": start, "bucket_width": self.width, "limit": num, "group_by[]": self.group_by.split()}
        return params | ({"project_ids": self.account} if self.account else {})


def run(rounds: int, scale: float = 1.0) -> list[list[str]]:
    """Return a row for each question to each database; `scale` multiplies the number of requests."""
    return asyncio.run(_run(rounds, scale))


async def _run(rounds: int, scale: float) -> list[list[str]]:
    now, rows = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer()
        try:
            server.start()
            urls = {"SQLite": f"sqlite+aiosqlite:///{folder}/manta.db", "PostgreSQL": server.create_database()}
            databases = {name: await connect(url) for name, url in urls.items()}
            await fill(list(databases.values()), now, scale)
            for name, database in databases.items():
                async with asking(database, Path(folder)) as http:
                    for question in questions():
                        rows.append([name, *await _ask(http, question, now, rounds)])
                await database.close()
        finally:
            server.remove()
    return rows


def questions() -> Iterator[Question]:
    """Yield what is asked: each route over the longest ranges that it allows."""
    widths: tuple[Width, ...] = ("1m", "1h", "1d")
    for width in widths:
        for kind in KINDS:
            for group_by in GROUPS if kind == "completions" else ("", "project_id"):
                yield Question(f"usage/{kind}", width, group_by)
        yield Question("usage/completions", width, "api_key_id model", account="acct_1")
        for account in ("", "acct_1"):
            yield Question("latency", width, "", account)
    for group_by in ("", "project_id", "line_item"):
        yield Question("costs", "1d", group_by)


@asynccontextmanager
async def asking(database: Database, folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Context manager for a client with an admin key, of an application over this database."""
    from tests.contract.http.conftest import world_over  # They load what no other scenario needs.
    from tests.contract.http.stored import open_responses

    clock = TestClock()
    async with open_responses(f"sqlite+aiosqlite:///{folder}/responses.db", folder, clock) as stored:
        world = world_over(clock, stored)
        world.usage = UsageReader(database)
        world.principal(ADMIN, key_id="key_admin", is_admin=True)
        gc.collect()
        gc.freeze()  # As an ingress replica does.
        async with world.http(authorization=f"Bearer {ADMIN}") as http:
            yield http


async def _ask(http: httpx2.AsyncClient, question: Question, now: float, rounds: int) -> list[str]:
    params = question.params(now)
    walls, cpu_s = [], 0.0
    for number in range(rounds + 1):
        before, started = _used_s(), time.perf_counter()
        answer = await http.get(f"/v1/organization/{question.route}", params=params)
        wall_s, used_s = time.perf_counter() - started, _used_s() - before
        assert answer.status_code == 200, answer.text
        if number:  # The first reads pages into the database's cache.
            walls.append(wall_s)
            cpu_s += used_s
    found = quantiles(walls, n=20, method="inclusive")
    num_results = sum(len(bucket["results"]) for bucket in answer.json()["data"])
    asked = question.group_by + (f" of {question.account}" if question.account else "")
    figures = [f"{1000 * seconds:.1f}" for seconds in (found[9], found[18], cpu_s / rounds)]
    width = f"{question.num_buckets} x {question.width}"
    return [question.route, width, asked.strip() or "-", str(num_results), *figures, str(len(answer.content) // 1000)]


def _used_s() -> float:
    """Return the processor time of this process and its children, among them the database's server, in seconds."""
    times = [one.cpu_times() for one in (psutil.Process(), *psutil.Process().children(recursive=True))]
    return sum(one.user + one.system for one in times)


async def fill(databases: Sequence[Database], now: float, scale: float) -> None:
    """Leave in each database what a year of requests leaves there."""
    random, today = np.random.default_rng(7), start_of(now, "1d")
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(database.write()) for database in databases]
        for day in range(today - (NUM_DAYS - 1) * DAY_S, today + 1, DAY_S):
            weight = 1 if _is_kept("1h", day, now) else WEIGHT
            usage, latency = rows_of(_requests(random, day, int(scale * NUM_REQUESTS / NUM_DAYS / weight), weight))
            for tables, rows in ((USAGE, usage), (LATENCY, latency)):
                for width, table in tables.items():
                    if _is_kept(width, day, now) and rows[width]:
                        for connection in connections:
                            await connection.execute(insert(table), rows[width])
        held = [
            {"width": width, "start": start, "account": f"acct_{number}", "num_bytes": 10**9}
            for width, step, num in (("1h", 3_600, 90 * 24), ("1d", DAY_S, NUM_DAYS))
            for start in range(today - num * step, today + 1, step)
            for number in range(NUM_ACCOUNTS)
        ]
        for connection in connections:
            await connection.execute(insert(vector_store_bytes), held)
            await connection.execute(text("ANALYZE"))


def _is_kept(width: Width, day: int, now: float) -> bool:
    kept_s = KEPT_S[width]
    return kept_s is None or day + DAY_S > now - kept_s


def _requests(random: np.random.Generator, day: int, num: int, weight: int) -> Iterator[Change]:
    """Yield the requests of a day: keys and models are used unequally, and every fifth is a line of a batch."""
    at = (day + random.integers(0, DAY_S, num)).tolist()
    keys = np.minimum(random.zipf(1.3, num) - 1, NUM_ACCOUNTS * KEYS_OF_ACCOUNT - 1).tolist()
    models = np.minimum(random.geometric(0.5, num) - 1, len(MODELS) - 1).tolist()
    operations = random.integers(0, len(TEXT), num).tolist()
    chances = random.random(num).tolist()
    seconds = np.exp(random.normal(0.5, 0.6, num)).tolist()
    tokens = random.integers(1, 2_000, (2, num)).tolist()
    for number in range(num):
        model, chance, total_s = models[number], chances[number], seconds[number]
        is_embedding = model == len(MODELS) - 1
        status = 429 if chance > 0.99 else 200
        prompt, written = (tokens[0][number], 0 if is_embedding else tokens[1][number]) if status == 200 else (0, 0)
        yield (
            {
                "record_id": "batch_1:1" if chance < 0.2 else "req_1",
                "at": at[number],
                "account": f"acct_{keys[number] % NUM_ACCOUNTS}",
                "key_id": f"key_{keys[number]}",
                "model": MODELS[model],
                "operation": "embeddings" if is_embedding else TEXT[operations[number]],
                "service_tier": "flex" if 0.2 < chance < 0.3 else None,
                "status": status,
                "stream": not is_embedding and chance < 0.7,
                "prompt_tokens": prompt,
                "completion_tokens": written,
                "cached_tokens": prompt // 2,
                "discounted_tokens": 0,
                "file_search_calls": int(0.3 < chance < 0.32),
                "web_search_calls": int(0.32 < chance < 0.34),
                "code_sessions": int(0.34 < chance < 0.35),
                "input_cost": prompt * 150_000,
                "cached_cost": prompt * 10_000,
                "output_cost": written * 600_000,
                "total_s": total_s,
                "ttft_s": total_s / 10,
            },
            weight,
        )
