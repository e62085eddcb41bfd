"""Look-ups of tools do not delay the answer, and what is missing is refused before the answer begins."""

import asyncio
import gc
import json

import openai
import pytest
from sqlalchemy.exc import OperationalError
from websockets.asyncio.client import connect

from deployments.state.containers import ContainerStore
from deployments.state.vector_stores.store import VectorStores
from serve_app.operations.responses.tools.contract import CheckedTool
from serve_app.operations.responses.tools.tool_set import OpenedTool, ToolSet
from tests.contract.http.answers import MODEL, SECRET, USAGE, said
from tests.contract.http.code_interpreter_calls import TOOL, runs
from tests.contract.http.conftest import serve
from tests.contract.http.file_search_calls import calls_of, filled_store, searches, tool_of
from tests.contract.http.response_calls import OTHER, lines_of, script, stream_of
from tests.twins.engine import Script
from tests.twins.legal import fold
from tests.waiting import eventually

MISSING = {"type": "file_search", "vector_store_ids": ["vs_nothing"]}


@pytest.fixture
async def store(world, vector_stores, indexer):
    return await filled_store(world, indexer, {"moon.md": "The moon is made of cheese."})


@pytest.fixture
def late(world, monkeypatch):
    """Have look-ups of vector stores and containers end only once the model has said something."""

    def has_spoken():
        return world.chat.streams and world.chat.streams[-1].num_pieces

    def delay(kind, name):
        find = getattr(kind, name)

        async def find_late(*args):
            await eventually(has_spoken)
            return await find(*args)

        monkeypatch.setattr(kind, name, find_late)

    def use():
        delay(VectorStores, "find_all")
        delay(ContainerStore, "find")

    return use


async def test_the_model_is_asked_while_vector_stores_are_looked_up(world, store, late):
    script(world, searches("moon"), said("Cheese 【1.1】."))
    late()
    final = fold(await stream_of(world, {"input": "x", "tools": [tool_of(store)]}))
    assert calls_of(final)[0]["status"] == "completed"
    assert final["output"][-1]["content"][0]["annotations"][0]["filename"] == "moon.md"


async def test_nothing_is_looked_up_before_the_model_is_asked(world, store, monkeypatch):
    find, asked_before = VectorStores.find_all, []

    async def note(*args):
        asked_before.append(len(world.chat.streams))
        return await find(*args)

    monkeypatch.setattr(VectorStores, "find_all", note)
    script(world, said("Hello."), said("Hello."))
    for _ in range(2):
        await stream_of(world, {"input": "x", "tools": [tool_of(store)]})
    assert asked_before == [1, 2]


async def test_the_model_is_asked_while_the_container_is_looked_up(world, interpreter, late):
    client = world.client()
    container = await client.containers.create(name="mine")
    script(world, runs("x = 40 + 2"), said("Done."), runs("print(x)"), said("42."))
    late()
    named = {"type": "code_interpreter", "container": container.id}
    first = fold(await stream_of(world, {"input": "x", "tools": [named]}))
    more = {"previous_response_id": first["id"], "include": ["code_interpreter_call.outputs"]}
    second = fold(await stream_of(world, {"input": "x", "tools": [TOOL], **more}))
    ran = [item for response in (first, second) for item in response["output"] if "container_id" in item]
    assert [one["container_id"] for one in ran] == [container.id] * 2
    assert ran[1]["outputs"] == [{"type": "logs", "logs": "42\n"}]


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_is_missing_is_a_404_though_the_model_has_begun(world, store, late, is_stream):
    late()
    script(world, said("Never ", "seen."))
    async with world.http() as http:
        told = await http.post(
            "/v1/responses", json={"model": MODEL, "input": "x", "tools": [MISSING], "stream": is_stream}
        )
    assert (told.status_code, told.json()["error"]["param"]) == (404, "tools[0].vector_store_ids[0]")
    assert "seen" not in told.text
    assert [stream.is_aborted for stream in world.chat.streams] == [True]
    assert world.gatekeeper.settled[-1][2] == 0
    assert world.stored.count() == 0


async def test_a_store_that_is_deleted_or_another_accounts_is_missing_with_the_next_request(world, store):
    client = world.client()
    ask = {"model": MODEL, "input": "x", "tools": [tool_of(store)]}
    await client.responses.create(**ask)
    world.principal(OTHER, account="acct_2")
    with pytest.raises(openai.NotFoundError):
        await world.client(OTHER).responses.create(**ask)
    await client.vector_stores.delete(store.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(**ask)


async def test_it_is_refused_before_a_background_response_is_told_of(world, store):
    with pytest.raises(openai.NotFoundError):
        await world.client().responses.create(model=MODEL, input="x", tools=[MISSING], background=True)
    assert world.stored.count() == 0
    assert not world.chat.requests


async def test_a_database_that_is_away_is_a_503_though_the_model_has_begun(world, store, monkeypatch):
    async def fail(*args):
        raise OperationalError(None, None, OSError("away"))

    monkeypatch.setattr(VectorStores, "find_all", fail)
    async with world.http() as http:
        told = await http.post(
            "/v1/responses", json={"model": MODEL, "input": "x", "tools": [tool_of(store)], "stream": True}
        )
    assert (told.status_code, told.json()["error"]["type"]) == (503, "server_error")
    assert [stream.is_aborted for stream in world.chat.streams] == [True]


async def test_tokens_are_not_counted_of_what_would_be_refused(world, store):
    with pytest.raises(openai.NotFoundError):
        await world.client().responses.input_tokens.count(model=MODEL, input="x", tools=[MISSING])


async def test_a_model_that_says_nothing_does_not_hide_it(world, store):
    world.chat.script = lambda request: Script([], USAGE)
    with pytest.raises(openai.NotFoundError):
        await world.client().responses.create(model=MODEL, input="x", tools=[MISSING])


async def test_lines_of_batches_are_told(world, store):
    ((status, body),) = await lines_of(world, {"model": MODEL, "input": "x", "tools": [MISSING]})
    assert (status, body["error"]["param"]) == (404, "tools[0].vector_store_ids[0]")


@pytest.mark.parametrize("is_generated", [False, True])
async def test_sockets_are_told(world, store, is_generated):
    script(world, said("Never."))
    body = {"type": "response.create", "model": MODEL, "input": "x", "tools": [MISSING], "generate": is_generated}
    async with serve(world.app(), ws="websockets-sansio") as address:
        url = address.replace("http", "ws") + "/v1/responses"
        async with connect(url, additional_headers={"authorization": f"Bearer {SECRET}"}) as connection:
            await connection.send(json.dumps(body))
            event = json.loads(await asyncio.wait_for(connection.recv(), 30))
    assert (event["type"], event["status"]) == ("error", 404)


def tools_that_check(check):
    """Return the tools of a response that has one, which looks something up."""

    class Tool(CheckedTool):
        def functions(self):
            return []

        def begin(self, name, arguments):
            raise NotImplementedError

        async def run(self, item, name, arguments, send):
            raise NotImplementedError

        async def check(self):
            await check()

    return ToolSet([OpenedTool("tool", Tool())])


async def test_a_failure_that_nobody_asks_for_is_not_logged_and_who_stops_looks_no_further(caplog):
    ended = asyncio.Event()

    async def fail():
        try:
            raise KeyError("missing")
        finally:
            ended.set()

    async def look():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    failing = tools_that_check(fail)
    with pytest.raises(KeyError):
        await failing.check()
    with pytest.raises(KeyError):
        await failing.check()
    ended.clear()
    unasked = tools_that_check(fail)
    unasked.begin_check()
    await asyncio.wait_for(ended.wait(), 30)
    await asyncio.sleep(0)
    del failing, unasked
    gc.collect()
    ended.clear()
    looking = tools_that_check(look)
    looking.begin_check()
    await asyncio.sleep(0)
    await looking.close()
    await asyncio.wait_for(ended.wait(), 30)
    assert not caplog.records
