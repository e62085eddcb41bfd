"""The tools that this deployment has switched on, made from its configuration: the same at both doors."""

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
    hosts: RemoteHosts | None = None

    def close(self) -> None:
        """Close every connection."""
        if self.hosts is not None:
            self.hosts.close()


def create_tooling(
    config: ToolsConfig, choosers: dict[str, ServeChooser], database: Database, files: FileStore
) -> Tooling:
    """Return the tools of a configuration; `choosers` lead to their deployments, by type."""
    if config.code_interpreter is None:
        return Tooling()
    hosts = RemoteHosts(choosers[TYPE])
    store = ContainerStore(database, files.vault, files.clock)
    containers = Containers(store, hosts, files, config.code_interpreter)
    return Tooling({TYPE: CodeInterpreter(containers)}, containers, hosts)
