"""A response whose ingress replica is killed once it is stored, before it is answered: the front asks another one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import psutil
import pytest
from sqlalchemy import text

from deployments.state.database.connection import connect
from tests.serve.ingress import PROMPT, answer_to, text_of, two_ingress_replicas
from tests.serve.records import records_of
from tests.service import CHAT, Service
from tests.waiting import eventually

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1200)]

NUM_TOKENS = 8
_LOCK = 20_261_125
_WAIT_AT_COMMITS = (
    f"""CREATE FUNCTION wait_for_test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared({_LOCK}); RETURN NULL; END $$""",
    """CREATE CONSTRAINT TRIGGER wait_for_test AFTER INSERT ON responses
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_for_test()""",
)
"""Have the transaction that stores a response wait at its commit for a lock that the test holds."""
_WAIT_NO_MORE = ("DROP TRIGGER wait_for_test ON responses", "DROP FUNCTION wait_for_test")
_WAITING = """SELECT client_port FROM pg_stat_activity JOIN pg_locks USING (pid)
    WHERE locktype = 'advisory' AND NOT granted"""


class Commits:
    """What the test does to the commits of responses while it holds them; see `held`."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def waiting(self) -> int:
        """Return the port of the process that waits to commit a response."""
        port = None

        async def is_waiting() -> bool:
            nonlocal port
            port = (await self._connection.execute(text(_WAITING))).scalar()
            return port is not None

        await eventually(is_waiting)
        assert port is not None
        return int(port)

    async def release(self) -> None:
        """Let them go on; return when another response is stored than before."""
        before = await self._num_stored()
        await self._connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK})"))

        async def is_stored() -> bool:
            return await self._num_stored() > before

        await eventually(is_stored)

    async def _num_stored(self) -> int:
        return int((await self._connection.execute(text("SELECT count(*) FROM responses"))).scalar())


@asynccontextmanager
async def held(database_url: str) -> AsyncIterator[Commits]:
    """Hold the commits of responses."""
    database = await connect(database_url)
    async with database.engine.connect() as opened:
        connection = await opened.execution_options(isolation_level="AUTOCOMMIT")
        for statement in _WAIT_AT_COMMITS:
            await connection.execute(text(statement))
        await connection.execute(text(f"SELECT pg_advisory_lock({_LOCK})"))
        try:
            yield Commits(connection)
        finally:
            await connection.execute(text("SELECT pg_advisory_unlock_all()"))
            for statement in _WAIT_NO_MORE:
                await connection.execute(text(statement))
    await database.close()


def connected_from(service: Service, port: int) -> psutil.Process:
    """Return the ingress replica that has a connection from a port."""
    for pid in two_ingress_replicas(service):
        if any(one.laddr.port == port for one in psutil.Process(pid).net_connections("tcp")):
            return psutil.Process(pid)
    raise AssertionError(f"no ingress replica connects from {port}")


async def test_it_is_stored_charged_and_added_to_its_conversation_once(fixed: Service, fixed_database_url: str) -> None:
    issued, secret = await fixed.issue(tier="enterprise", requests_per_minute=1000, tokens_per_minute=10_000_000)
    await asyncio.to_thread(two_ingress_replicas, fixed)
    headers = {"authorization": f"Bearer {secret}"}
    client = httpx2.AsyncClient(base_url=fixed.url, headers=headers, timeout=60)
    async with client as http, held(fixed_database_url) as commits:
        talk = (await http.post("/v1/conversations", json={})).json()["id"]
        body = {"model": CHAT, "input": PROMPT, "max_output_tokens": NUM_TOKENS, "conversation": talk}
        asked = asyncio.create_task(http.post("/v1/responses", json=body))
        ingress = await asyncio.to_thread(connected_from, fixed, await commits.waiting())
        ingress.suspend()
        await commits.release()
        ingress.kill()
        answer = await asked
        told = answer.json()
        items = (await http.get(f"/v1/conversations/{talk}/items", params={"order": "asc"})).json()["data"]
        kept = (await http.get(f"/v1/responses/{told['id']}")).json()
    assert answer.status_code == 200, answer.text
    assert told["id"] == "resp_" + answer.headers["x-request-id"].removeprefix("req_")
    assert text_of(told) == answer_to(PROMPT, NUM_TOKENS)
    assert kept == told
    assert [item["role"] for item in items] == ["user", "assistant"]
    assert items[1] == told["output"][0]
    records = [one for one in await records_of(fixed, issued.key_id, 1) if one.route == "/v1/responses"]
    assert [(one.request_id, one.completion_tokens) for one in records] == [
        (answer.headers["x-request-id"], NUM_TOKENS)
    ]
