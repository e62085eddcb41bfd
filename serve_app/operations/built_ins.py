"""The tools that this deployment has switched on, made from its configuration: the same at both doors."""

from collections.abc import Callable
from dataclasses import dataclass, field

from deployments.state.containers import ContainerStore
from deployments.state.database import Database
from deployments.state.files import FileStore
from deployments.tools.code_interpreter.client import RemoteHosts, ServeChooser
from deployments.tools.config import ToolsConfig
from serve_app.operations.code_interpreter.containers import Containers
from serve_app.operations.code_interpreter.tool import TYPE, CodeInterpreter
from serve_app.operations.responses.tools import BuiltIn


@dataclass(frozen=True, slots=True)
class Tooling:
    """The tools that are switched on, by type, and what their own routes use."""

    built_ins: dict[str, BuiltIn] = field(default_factory=dict)
    containers: Containers | None = None
    closers: tuple[Callable[[], None], ...] = ()

    def close(self) -> None:
        """Close every connection."""
        for close in self.closers:
            close()


def create_tooling(
    config: ToolsConfig, choosers: dict[str, ServeChooser], database: Database, files: FileStore
) -> Tooling:
    """Return the tools of a configuration; `choosers` lead to their deployments, by type."""
    built_ins: dict[str, BuiltIn] = {}
    containers: Containers | None = None
    closers: list[Callable[[], None]] = []
    if config.code_interpreter is not None:
        hosts = RemoteHosts(choosers[TYPE])
        store = ContainerStore(database, files.vault, files.clock)
        containers = Containers(store, hosts, files, config.code_interpreter)
        built_ins[TYPE] = CodeInterpreter(containers)
        closers.append(hosts.close)
    if config.mcp is not None:
        # Importing MCP's library takes half a second, which only those spend who use it.
        from deployments.tools.mcp.client import McpServers
        from serve_app.operations.mcp.tool import RemoteMcp

        servers = McpServers(config.mcp, config.outbound.rules)
        built_ins[RemoteMcp.type] = RemoteMcp(servers)
        closers.append(servers.close)
    return Tooling(built_ins, containers, tuple(closers))
