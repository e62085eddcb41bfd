"""The tools that this deployment has switched on, made from its configuration: the same at both doors."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from deployments.models.contract.engine import ModelDirectory
from deployments.state.containers.store import ContainerStore
from deployments.state.database.connection import Database
from deployments.state.files.store import FileStore
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.vector_stores.store import VectorStores
from deployments.tools.code_interpreter.client import RemoteHosts, ServeChooser
from deployments.tools.config import ToolsConfig
from deployments.tools.search_index.index import SearchIndex
from deployments.tools.web_search.setup import create_provider, create_reader
from serve_app.operations.containers import tool as code_interpreter
from serve_app.operations.containers.service import Containers
from serve_app.operations.containers.tool import CodeInterpreter
from serve_app.operations.responses.tools.contract import BuiltIn
from serve_app.operations.routing import CacheSalt
from serve_app.operations.vector_stores import tool as file_search
from serve_app.operations.vector_stores.embedder import Embedder
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.operations.vector_stores.service import VectorStoreService
from serve_app.operations.vector_stores.tool import FileSearchBuiltIn
from serve_app.operations.web_search import tool as web_search
from serve_app.operations.web_search.tool import WebSearch


@dataclass(frozen=True, slots=True)
class Foundation:
    """What tools stand on: the stores, the models, and where the object store is."""

    database: Database
    files: FileStore
    directory: ModelDirectory
    salt: CacheSalt
    place: ResolvedObjectStore


@dataclass(frozen=True, slots=True)
class Tooling:
    """The tools that are switched on, by type, and what their own routes use; `closers` end what they hold open."""

    built_ins: dict[str, BuiltIn] = field(default_factory=dict)
    containers: Containers | None = None
    file_search: FileSearch | None = None
    closers: tuple[Callable[[], Awaitable[None] | None], ...] = ()

    async def aclose(self) -> None:
        """Close every connection."""
        for close in self.closers:
            closing = close()
            if closing is not None:
                await closing


def create_tooling(config: ToolsConfig, choosers: dict[str, ServeChooser], foundation: Foundation) -> Tooling:
    """Return the tools of a configuration; `choosers` lead to their deployments, by type."""
    files = foundation.files
    built_ins: dict[str, BuiltIn] = {}
    containers: Containers | None = None
    search: FileSearch | None = None
    closers: list[Callable[[], Awaitable[None] | None]] = []
    if config.code_interpreter is not None:
        hosts = RemoteHosts(choosers[code_interpreter.TYPE])
        store = ContainerStore(foundation.database, files.vault, files.clock)
        containers = Containers(store, hosts, files, config.code_interpreter)
        built_ins[code_interpreter.TYPE] = CodeInterpreter(containers)
        closers.append(hosts.close)
    if config.file_search is not None:
        desk = VectorStoreService(
            VectorStores(foundation.database, files.vault, files.clock), files, config.file_search
        )
        embedder = Embedder(foundation.directory, foundation.salt, config.file_search.inputs_per_call)
        search = FileSearch(desk, SearchIndex(foundation.place), embedder)
        built_ins[file_search.TYPE] = FileSearchBuiltIn(search)
    if config.web_search is not None:
        provider, reader = create_provider(config), create_reader(config)
        built_ins[web_search.TYPE] = WebSearch(provider, reader)
        closers += [provider.aclose, reader.aclose]
    if config.mcp is not None:
        # Importing MCP's library takes half a second, which only those spend who use it.
        from deployments.tools.mcp.client import McpServers
        from serve_app.operations.mcp.tool import RemoteMcp

        servers = McpServers(config.mcp, config.outbound.rules)
        built_ins[RemoteMcp.type] = RemoteMcp(servers)
        closers.append(servers.close)
    return Tooling(built_ins, containers, search, tuple(closers))
