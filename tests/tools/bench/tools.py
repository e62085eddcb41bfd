"""The service's own tools: how soon code runs, searches a second, indexing, and what tools add to a turn without calls.

Real are the sandboxes, the database, LanceDB, the processes that read documents and pages, and the guarded client. The
search service and its pages are a small web in this process, whose own work counts too. The model of the turns says
what a script says, from `MODEL_S` on, which is sooner than any real one; the rest is the service's part. Ray and HTTP
are left out.
"""

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from deployments.models.contract.engine import EngineRequest
from deployments.models.contract.events import Finished, TextDelta
from deployments.models.contract.render import EventLines
from deployments.state.containers import ContainerStore
from deployments.tools.config import CodeInterpreterConfig, McpConfig
from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.web_search.providers import Search, SearchProvider
from deployments.tools.web_search.reader import PageReader
from serve_app.operations.containers.service import Containers
from serve_app.operations.containers.tool import CodeInterpreter
from serve_app.operations.registry import create_operations
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.storage import storage_in
from serve_app.operations.routing import cache_salts
from serve_app.operations.vector_stores.tool import FileSearchBuiltIn
from serve_app.operations.web_search.tool import WebSearch
from serve_app.schemas.responses.request import ResponseRequest
from serve_app.schemas.vector_stores import StaticChunking, StaticSizes
from tests.tools.bench import code_interpreter
from tests.tools.bench.file_search import DOCUMENTS, HALVES, WHO, Bench, open_bench, read_documents
from tests.tools.bench.local_embeddings import LocalEmbeddings, hash_embeddings, load_minilm
from tests.twins.engine import MemoryDirectory, Script, ScriptedEngine, model_card
from tests.twins.interpreter import run_interpreter
from tests.twins.web import SITES, Web

COLUMNS = ("what", "a second", "p50 ms", "p95 ms", "most ms", "times")
MODEL = "bench/chat"
MODEL_S = 0.005
NUM_FILES = 9
NUM_TURNS = 1000
AT_ONCE = 8
OURS = "code interpreter, file search and web search"
SENTENCE = [[TextDelta("text", 0, "word ")] for _ in range(64)]
LISTED = {
    "type": "mcp_list_tools",
    "id": "mcpl_1",
    "server_label": "store",
    "tools": [{"name": f"tool_{n}", "input_schema": {"type": "object", "properties": {}}} for n in range(8)],
}


def run(rounds: int, scale: float = 1.0) -> list[list[str]]:
    """Return a row for each figure; `scale` multiplies how much is indexed and how many turns are made."""
    rows = [[what, "-", *figures] for what, *figures in code_interpreter.run(rounds)]
    return rows + asyncio.run(_run(rounds, scale))


async def _run(rounds: int, scale: float) -> list[list[str]]:
    from tests.contract.http.conftest import open_web  # It loads what no other scenario needs.

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_bench(Path(folder), LocalEmbeddings(hash_embeddings)) as bench,
            open_web() as (web, provider, reader),
        ):
            rows += await _file_searches(bench, 10 * rounds, max(1, round(NUM_FILES * scale)))
            rows += await _web_searches(web, provider, reader, 10 * rounds)
            rows += await _turns(bench, WebSearch(provider, reader), Path(folder), max(1, round(NUM_TURNS * scale)))
    with tempfile.TemporaryDirectory() as folder:
        async with open_bench(Path(folder), LocalEmbeddings(load_minilm())) as bench:
            store, took_s = await bench.fill(read_documents(DOCUMENTS))
            num_chunks = await bench.count_chunks(store)
            rows.append(_rate("chunks indexed, all-MiniLM-L6-v2 in the same process", num_chunks, took_s))
    return rows


async def _file_searches(bench: Bench, times: int, num_files: int) -> list[list[str]]:
    words = [word for text in read_documents(("*.md",)).values() for word in text.split()]
    choose = random.Random(1)
    text = {f"{n}.txt": " ".join(choose.choices(words, k=60_000)) for n in range(num_files)}
    chunking = StaticChunking(type="static", static=StaticSizes(max_chunk_size_tokens=100, chunk_overlap_tokens=0))
    store, took_s = await bench.fill(text, chunking)
    num_chunks = await bench.count_chunks(store)

    async def search() -> None:
        assert await bench.ask(store, " ".join(choose.choices(words, k=8)), HALVES["hybrid"], 10)

    return [
        _rate("chunks indexed, vectors at no cost", num_chunks, took_s),
        await _measure(f"file search of {num_chunks:,} chunks", search, times),
        await _measure(f"the same, {AT_ONCE} at once", search, times, AT_ONCE),
    ]


async def _web_searches(web: Web, provider: SearchProvider, reader: PageReader, times: int) -> list[list[str]]:
    async def search() -> None:
        assert await provider.search(Search("lisbon", 8))

    async def read() -> None:
        assert (await reader.read(web.url(SITES[0]))).text

    return [
        await _measure("web search", search, times),
        await _measure(f"the same, {AT_ONCE} at once", search, times, AT_ONCE),
        await _measure("a page opened and read", read, times),
    ]


def own_tools(store_id: str) -> list[dict[str, Any]]:
    """Return the service's own tools as a request names them: `OURS`."""
    return [
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "file_search", "vector_store_ids": [store_id]},
        {"type": "web_search"},
    ]


def _bodies(store_id: str) -> dict[str, dict[str, Any]]:
    function = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    ours = own_tools(store_id)
    server = {"type": "mcp", "server_label": "store", "server_url": "https://store.example/mcp"}
    said = {"type": "message", "role": "user", "content": "Hello."}
    body = {"model": MODEL, "input": [said], "stream": True, "store": False}
    return {
        "no tools": body,
        "a function of the caller's": {**body, "tools": [function]},
        OURS: {**body, "tools": ours},
        "these and a remote server's, listed before": {**body, "input": [LISTED, said], "tools": [*ours, server]},
    }


async def _as_callers(operation: ResponseOperation, body: dict[str, Any]) -> dict[str, Any]:
    """Return a body that offers the model the same functions, which the service then knows nothing of."""
    raw = orjson.dumps(body)
    turn = await operation.begin(ResponseRequest.model_validate(body), raw, WHO, request_id="req_1")
    await turn.tools.close()
    return {**body, "tools": [{"type": "function", **one.function["function"]} for one in turn.tools.offered]}


async def _turns(bench: Bench, web: WebSearch, folder: Path, times: int) -> list[list[str]]:
    """Return how long turns take in which no tool is called, by which tools they offer."""
    store, _ = await bench.fill({"moon.txt": "The moon is made of cheese."})
    bodies = _bodies(store.store_id)
    async with _responses(bench, web, folder) as operation:
        bodies["the functions of these, as the caller's own"] = await _as_callers(operation, bodies[OURS])
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in bodies}
        for _ in range(times):
            for name, body in bodies.items():  # In turn, so that all meet the same machine.
                took[name].append(await _turn(operation, body))
    rows = []
    (alone, without), *others = took.items()
    for number, what in enumerate(("first text", "whole answer")):
        rows.append(_row(f"a turn's {what}, {alone}", [one[number] for one in without]))
        for name, times_ms in others:
            added = [one[number] - other[number] for one, other in zip(times_ms, without, strict=True)]
            rows.append(_row(f"added to it by offering {name}", added))
    return rows


@asynccontextmanager
async def _responses(bench: Bench, web: WebSearch, folder: Path) -> AsyncIterator[ResponseOperation]:
    """Yield the responses operation, with every tool switched on, over a model that answers at once."""
    from deployments.tools.mcp.client import McpServers  # Loading MCP's library takes its time.
    from serve_app.operations.mcp import RemoteMcp

    renderer = EventLines()
    pieces = [renderer.events(events) for events in [*SENTENCE, [Finished("finished", 0, "stop")]]]
    card = model_card(MODEL, "chat", "responses", has_tools=True, max_model_len=100_000)

    def play(request: EngineRequest) -> Script:
        has_read = asyncio.Event()
        reading = asyncio.get_running_loop().run_in_executor(None, time.sleep, MODEL_S)  # The loop's clock is coarse.
        reading.add_done_callback(lambda _: has_read.set())
        return Script([has_read, *(piece for piece in pieces if piece)])

    engine = ScriptedEngine(card, play)
    storage = storage_in(bench.files._database, bench.files)
    servers = McpServers(McpConfig(), AddressRules())
    async with run_interpreter(folder) as interpreter:
        database = bench.files._database
        containers = ContainerStore(database, bench.files.vault, time.time)
        own = Containers(containers, interpreter.hosts, bench.files, CodeInterpreterConfig())
        tools = (CodeInterpreter(own), FileSearchBuiltIn(bench.search), web, RemoteMcp(servers))
        built_ins = {tool.type: tool for tool in tools}
        operations = create_operations(MemoryDirectory([engine]), cache_salts(b"salt"), None, storage, built_ins)
        yield operations.responses
    servers.close()


async def _turn(operation: ResponseOperation, body: dict[str, Any]) -> tuple[float, float]:
    """Return after how many milliseconds a response's first text came, and its end."""
    raw = orjson.dumps(body)
    started = time.perf_counter()
    request = ResponseRequest.model_validate(orjson.loads(raw))
    turn = await operation.begin(request, raw, WHO, request_id="req_1")
    answer = operation.answer(turn, operation.first_chat(turn), lambda: None)
    first = None
    async for piece in answer:
        if first is None and piece.startswith(b"event: response.output_text.delta"):
            first = time.perf_counter()
    ended = time.perf_counter()
    assert first is not None
    return 1000 * (first - started), 1000 * (ended - started)


async def _measure(what: str, work: Callable[[], Awaitable[None]], times: int, at_once: int = 1) -> list[str]:
    """Return a row for work that several do at once."""
    took: list[float] = []

    async def repeat() -> None:
        while len(took) < times:
            started = time.perf_counter()
            await work()
            took.append(1000 * (time.perf_counter() - started))

    await work()  # The first one opens what the others use.
    began = time.perf_counter()
    await asyncio.gather(*(repeat() for _ in range(at_once)))
    return _row(what, took, len(took) / (time.perf_counter() - began))


def _rate(what: str, number: int, took_s: float) -> list[str]:
    return [what, f"{number / took_s:,.0f}", "-", "-", "-", f"{number:,}"]


def _row(what: str, times_ms: list[float], per_second: float | None = None) -> list[str]:
    ordered = sorted(times_ms)
    at = [f"{ordered[int(share * (len(ordered) - 1))]:.2f}" for share in (0.5, 0.95, 1.0)]
    return [what, "-" if per_second is None else f"{per_second:,.0f}", *at, str(len(ordered))]
