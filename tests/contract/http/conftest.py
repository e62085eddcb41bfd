"""The application over twins, and the real `openai` client before it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any

import httpx2
import openai
import pytest
import uvicorn
from openai.resources.responses import AsyncResponses

from batch.config import BatchConfig
from batch.config import Intervals as BatchIntervals
from batch.coordinator import Coordinator
from batch.run import RunContext
from batch.stores import Stores, create_stores
from batch.worker import LineWorker
from deployments.models.client.directory import ModelStartup
from deployments.models.price import NO_PRICES, Prices
from deployments.operations import operations_of
from deployments.patience import Patience
from deployments.state.batches.store import BatchStore
from deployments.state.config import FilesConfig, StateConfig
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.containers import ContainerStore
from deployments.state.database.connection import connect
from deployments.state.disk import DiskReserve
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.housekeeping import Housekeeping, Intervals, create_chores
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.copies import Side
from deployments.state.objects.pair import PairedStore
from deployments.state.uploads.store import UploadStore
from deployments.state.usage.record import RequestRecord
from deployments.tools.config import CodeInterpreterConfig, FileSearchConfig, ToolsConfig
from deployments.tools.outbound.addresses import AddressRules
from deployments.tools.outbound.fetching import Fetcher
from deployments.tools.web_search.providers import SearchProvider, create_provider
from deployments.tools.web_search.reader import PageReader
from serve_app.asgi import create_asgi_app
from serve_app.http.admission import Admission
from serve_app.http.body_limits import BodyLimits
from serve_app.http.connections import SocketPlaces
from serve_app.http.sse import Silence
from serve_app.operations.containers.service import Containers
from serve_app.operations.containers.tool import CodeInterpreter
from serve_app.operations.registry import create_operations, create_tooling
from serve_app.operations.responses.background.runner import BackgroundRunner
from serve_app.operations.responses.background.running import Timing
from serve_app.operations.responses.storage import Storage
from serve_app.operations.responses.tools.contract import ToolResources
from serve_app.operations.routing import cache_salts
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.operations.safety.policy import SafetyConfig, create_policies
from serve_app.operations.vector_stores.indexing import Indexer
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.operations.web_search.tool import WebSearch
from serve_app.services import Services
from serve_app.telemetry.log import log_bug
from serve_app.telemetry.series import PrometheusMetrics
from serve_app.telemetry.trace import Observer
from tests.contract.http.answers import EMBEDDING_MODEL, MODEL, SECRET, answer
from tests.contract.http.stored import StoredResponses, open_responses
from tests.patience import PATIENT
from tests.twins.engine import MemoryDirectory, ScriptedEngine, model_card
from tests.twins.fleet import LocalFleet
from tests.twins.gatekeeper import MemoryGatekeeper, MemoryRequestLog, TestClock
from tests.twins.interpreter import Interpreter, run_interpreter
from tests.twins.keys import principal_of_key
from tests.twins.objects import MemoryObjects
from tests.twins.web import Web, resolve
from tests.waiting import eventually


def principal(**overrides: object) -> Principal:
    values: dict[str, object] = {
        "account": "acct_1",
        "organization": "org-one",
        "tier": "standard",
        "requests_per_minute": 1000,
        "tokens_per_minute": 1_000_000,
        **overrides,
    }
    return principal_of_key(**values)  # type: ignore[arg-type]


@dataclass
class World:
    """Everything behind one application, open to the test."""

    gatekeeper: MemoryGatekeeper
    clock: TestClock
    chat: ScriptedEngine
    embeddings: ScriptedEngine
    directory: MemoryDirectory
    log: MemoryRequestLog
    metrics: PrometheusMetrics
    stored: StoredResponses
    safety: dict[str, SafetyConfig] = field(default_factory=dict)
    moderation: ModerationConfig | None = None
    bounds: BodyLimits = field(default_factory=BodyLimits)
    sockets: SocketPlaces = field(default_factory=SocketPlaces)
    startup: ModelStartup = field(default_factory=ModelStartup)
    keys: Any = field(default_factory=lambda: _Absent())
    files: Any = field(default_factory=lambda: _Absent())
    uploads: Any = field(default_factory=lambda: _Absent())
    batches: Any = field(default_factory=lambda: _Absent())
    wake_batches: Callable[[], None] = lambda: None
    file_rules: FilesConfig = field(default_factory=FilesConfig)
    tiers: Tiers = field(default_factory=Tiers)
    objects: Any = field(init=False)
    built_ins: dict[str, Any] = field(default_factory=dict)
    containers: Any = None
    file_search: Any = None
    usage: Any = field(default_factory=lambda: _Absent())
    request_log: Any = field(default_factory=lambda: _Absent())
    audit: Any = field(default_factory=lambda: _Absent())
    used_in_minute: Any = None
    prices: Prices = NO_PRICES
    webhooks: Any = field(default_factory=lambda: _Absent())
    tracer: Any = None
    webhook_sender: Any = field(default_factory=lambda: _Absent())
    timing: Timing = field(default_factory=lambda: Timing(1.0, 0.05, 0.005, 0.05, 0.01, 0.01))
    console: ConsoleSessions | None = None
    cluster: Any = None
    region: str = ""
    cors_origins: tuple[str, ...] = ()
    patience: Patience = PATIENT
    silence: Silence = field(default_factory=Silence)
    disk: DiskReserve = field(default_factory=DiskReserve)
    runners: list[BackgroundRunner] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.objects = MemoryObjects(self.clock)

    def storage(self) -> Storage:
        return self.stored.storage(self.files, self.tiers, self.disk)

    def app(self):
        salt = cache_salts(b"salt")
        policies = create_policies(self.safety, self.directory)
        storage = self.storage()
        operations = create_operations(
            self.directory, salt, policies, storage, self.built_ins, self.moderation, self.patience
        )
        observer = Observer(self.log, self.metrics, self.prices, self.tracer)
        runner = BackgroundRunner(operations.responses, storage, self.gatekeeper, observer, self.timing)
        self.runners.append(runner)
        return create_asgi_app(
            Services(
                gatekeeper=self.gatekeeper,
                directory=self.directory,
                admission=Admission(self.gatekeeper),
                operations=operations,
                observer=observer,
                metrics=self.metrics,
                keys=self.keys,
                files=self.files,
                uploads=self.uploads,
                file_rules=self.file_rules,
                tiers=self.tiers,
                batches=self.batches,
                wake_batches=self.wake_batches,
                containers=self.containers,
                file_search=self.file_search,
                background=runner,
                usage=self.usage,
                request_log=self.request_log,
                audit=self.audit,
                used_in_minute=self.used_in_minute,
                prices=self.prices,
                webhooks=self.webhooks,
                webhook_sender=self.webhook_sender,
                body_bounds=self.bounds,
                sockets=self.sockets,
                startup=self.startup,
                console=self.console,
                cluster=self.cluster,
                region=self.region,
                cors_origins=self.cors_origins,
                silence=self.silence,
                disk=self.disk,
            )
        )

    def http(self, **headers: str) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=self.app())
        sent = {"authorization": f"Bearer {SECRET}", **headers}
        return httpx2.AsyncClient(transport=transport, base_url="http://manta.test", headers=sent)

    def client(self, secret: str = SECRET, max_retries: int = 0) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=secret,
            base_url="http://manta.test/v1",
            max_retries=max_retries,
            http_client=httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app())),
        )

    def principal(self, secret: str = SECRET, **overrides: object) -> None:
        self.gatekeeper.principals[secret] = principal(tiers=self.tiers, **overrides)


class _Absent:
    """What nobody may reach, because the test did not ask for it."""

    def __getattr__(self, name: str):
        raise AssertionError(f"{name} was called")


@pytest.fixture
def responses(world) -> AsyncResponses:
    """The real client's part for responses."""
    return world.client().responses


@pytest.fixture
async def key_store(tmp_path, sqlite_at, world) -> AsyncIterator[KeyStore]:
    """The real key store behind the admin routes, on a database of its own."""
    database = await connect(sqlite_at(tmp_path / "keys.db"))
    world.keys = KeyStore(database, b"pepper" * 6, world.tiers, world.clock)
    yield world.keys
    await database.close()


@pytest.fixture
def files_url(tmp_path, sqlite_at) -> str:
    """The URL of the database of `file_store`; a module of tests may put another in its place."""
    return sqlite_at(tmp_path / "files.db")


@pytest.fixture
async def file_store(files_url, world) -> AsyncIterator[FileStore]:
    """The real file store behind the routes, over a database of its own and objects in memory."""
    database = await connect(files_url)
    # Time passes by both clocks at once.
    world.files = FileStore(database, world.objects, Vault(database, b"m" * 32), world.clock, world.clock)
    world.uploads = UploadStore(database, world.files)
    yield world.files
    await database.close()


@pytest.fixture
def buckets(world) -> tuple[MemoryObjects, MemoryObjects]:
    """The buckets of two regions, the near one first; this service is in `us`. Before any store over them."""
    near, far = MemoryObjects(world.clock), MemoryObjects(world.clock)
    world.objects, world.region = PairedStore(Side("us", near), Side("asia", far), None), "us"
    return near, far


@pytest.fixture
async def interpreter(tmp_path, world, file_store) -> AsyncIterator[Interpreter]:
    """The real code interpreter, switched on: sandboxes in this process, containers in the database of `file_store`."""
    async with run_interpreter(tmp_path) as running:
        _switch_on(running, world, file_store, CodeInterpreterConfig(max_containers_per_account=3))
        yield running


@pytest.fixture
async def shell(tmp_path, world, file_store) -> AsyncIterator[Interpreter]:
    """The same with a shell in the containers."""
    async with run_interpreter(tmp_path, has_shell=True) as running:
        _switch_on(running, world, file_store, CodeInterpreterConfig(max_containers_per_account=3, shell=True))
        yield running


def _switch_on(running: Interpreter, world: World, files: FileStore, config: CodeInterpreterConfig) -> None:
    store = ContainerStore(files._database, files.vault, world.clock)
    world.containers = Containers(store, running.hosts, files, config)
    world.built_ins["code_interpreter"] = CodeInterpreter(world.containers)


@pytest.fixture
def vector_stores(tmp_path, world, file_store) -> FileSearch:
    """The real search over files, in the database of `file_store`; nobody indexes what is put into vector stores."""
    config = FileSearchConfig(embedding_model=EMBEDDING_MODEL, max_stores_per_account=5, inputs_per_call=8)
    place = ResolvedObjectStore((tmp_path / "objects").as_uri())
    tools = ToolsConfig(file_search=config)
    resources = ToolResources(tools, file_store._database, file_store, world.directory, cache_salts(b"salt"), place)
    tooling = create_tooling(resources)
    world.file_search = tooling.file_search
    world.built_ins |= tooling.built_ins
    return world.file_search


@pytest.fixture
def indexer(world, vector_stores) -> Indexer:
    """What indexes; a test takes its steps, or has it watch."""
    observer = Observer(world.log, world.metrics)
    search = world.file_search
    parts = (search.service, search.indexes, search.embedder, world.gatekeeper, observer)
    return Indexer(*parts, uptime=world.clock)


@pytest.fixture
async def mcp_server(world) -> AsyncIterator[Any]:
    """A real MCP server on loopback, and the tool switched on and allowed to reach it."""
    from deployments.tools.config import McpConfig, OutboundConfig  # Loading MCP's library takes its time.
    from deployments.tools.mcp.client import McpServers
    from serve_app.operations.mcp import RemoteMcp
    from tests.twins.mcp_server import run_mcp_server

    outbound = OutboundConfig.model_validate({"allowed_networks": ["127.0.0.0/8"]})
    servers = McpServers(McpConfig(max_tools=8, max_answer_mib=1), outbound.rules)
    world.built_ins["mcp"] = RemoteMcp(servers)
    async with run_mcp_server() as running:
        yield running
        servers.close()


@asynccontextmanager
async def open_web() -> AsyncIterator[tuple[Web, SearchProvider, PageReader]]:
    """Serve a small web with a SearXNG that knows it on loopback; yield it, and what searches and reads it."""
    made = Web()
    async with serve(made.app()) as address:
        made.port = int(address.rpartition(":")[2])
        told = {"web_search": {"provider": {"name": "searxng", "url": address}}}
        provider = create_provider(ToolsConfig.model_validate(told))
        reader = PageReader(Fetcher(AddressRules((IPv4Network("127.0.0.1/32"),)), resolve=resolve))
        yield made, provider, reader
        await provider.aclose()
        await reader.aclose()


@pytest.fixture
async def web(world) -> AsyncIterator[Web]:
    """The real web search, switched on, over a small web on loopback."""
    async with open_web() as (made, provider, reader):
        world.built_ins["web_search"] = WebSearch(provider, reader)
        yield made


@dataclass
class Batching:
    """What runs the batches of a world, in this process."""

    stores: Stores
    config: BatchConfig
    coordinator: Coordinator
    worker: LineWorker
    fleet: Any
    counted: list[RequestRecord]


@asynccontextmanager
async def run_batches(
    world: World,
    stores: Stores,
    fleet: Callable[[LineWorker], Any] = LocalFleet,
    intervals: Intervals | None = None,
    **overrides: object,
) -> AsyncIterator[Batching]:
    """Have a coordinator with a worker of its own run, and the housekeeping beside it."""
    config, quick = BatchConfig(**overrides), BatchIntervals(poll_s=0.02, commit_s=0.02)
    salt = cache_salts(b"salt")
    made = create_operations(world.directory, salt, None, world.storage(), world.built_ins, world.moderation)
    operations = made.by_path()
    counted: list[RequestRecord] = []
    worker = LineWorker(stores, operations, config, counted.append, quick, world.prices, world.tracer)
    workers = fleet(worker)
    context = RunContext(stores, workers, config, world.file_rules, world.tiers, world.tracer)
    coordinator = Coordinator(context, quick)
    world.wake_batches = coordinator.poke
    chores = create_chores(stores.database, stores.files, stores.work, StateConfig(), intervals)
    running = [asyncio.create_task(work) for work in (coordinator.run(), Housekeeping(chores, log_bug).run())]
    try:
        yield Batching(stores, config, coordinator, worker, workers, counted)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
def batch_stores(world, file_store) -> Stores:
    """The real stores behind batches, over the database and the objects of `file_store`."""
    database = file_store._database
    world.batches = BatchStore(database, file_store.vault, clock=world.clock)
    return create_stores(database, world.objects, file_store, world.batches)


@pytest.fixture
async def batching(world, batch_stores) -> AsyncIterator[Batching]:
    """A coordinator that runs."""
    async with run_batches(world, batch_stores) as running:
        yield running


@asynccontextmanager
async def serve(app, ws: str = "none") -> AsyncIterator[str]:
    """Serve an application with uvicorn on a loopback port; yield its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    # As uvloop does; asyncio does it only for sockets that are made in another way. Else answers wait for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws=ws))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    await eventually(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listener.close()


@pytest.fixture
async def live(world) -> AsyncIterator[str]:
    """The address of the application behind a real server."""
    async with serve(world.app()) as address:
        yield address


@pytest.fixture
async def world(tmp_path, sqlite_at) -> AsyncIterator[World]:
    clock, path = TestClock(), tmp_path / "responses.db"
    async with open_responses(sqlite_at(path), path, clock) as stored:
        made = world_over(clock, stored)
        yield made
        for runner in made.runners:
            await runner.close()


def world_over(clock: TestClock, stored: StoredResponses) -> World:
    """Return the world of one service, over its database."""
    writes, reads = operations_of("generate"), operations_of("embed")
    chat = ScriptedEngine(model_card(MODEL, *writes, has_tools=True), answer)
    embeddings = ScriptedEngine(model_card(EMBEDDING_MODEL, *reads, max_model_len=256), answer)
    return World(
        gatekeeper=MemoryGatekeeper({SECRET: principal()}, clock),
        clock=clock,
        chat=chat,
        embeddings=embeddings,
        directory=MemoryDirectory([chat, embeddings], {"chat": MODEL}),
        log=MemoryRequestLog(),
        metrics=PrometheusMetrics(),
        stored=stored,
    )
