"""The tools that this deployment has switched on, made from its configuration: the same at both doors.

A tool is found by its name: `create_built_in` in `serve_app/operations/NAME.py` makes it from its section of the
configuration. Those of several files are in folders.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module

from deployments.operations import TOOLS, Operation
from serve_app.operations.containers.service import Containers
from serve_app.operations.containers.tool import CodeInterpreter
from serve_app.operations.foundation import Foundation
from serve_app.operations.responses.tools.contract import BuiltIn
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.operations.vector_stores.tool import FileSearchBuiltIn

_IN_FOLDERS = {
    Operation.CODE_INTERPRETER: "containers.tool",
    Operation.FILE_SEARCH: "vector_stores.tool",
    Operation.WEB_SEARCH: "web_search.tool",
    Operation.MCP: "mcp.tool",
}


@dataclass(frozen=True, slots=True)
class Tooling:
    """The tools that are switched on, by type; `closing` ends what they hold open."""

    built_ins: dict[str, BuiltIn]
    closing: AsyncExitStack

    @property
    def containers(self) -> Containers | None:
        """The containers of the code interpreter."""
        tool = self.built_ins.get(Operation.CODE_INTERPRETER)
        return tool.containers if isinstance(tool, CodeInterpreter) else None

    @property
    def file_search(self) -> FileSearch | None:
        """The search over files."""
        tool = self.built_ins.get(Operation.FILE_SEARCH)
        return tool.search if isinstance(tool, FileSearchBuiltIn) else None

    async def aclose(self) -> None:
        """Close every connection."""
        await self.closing.aclose()


def create_tooling(foundation: Foundation) -> Tooling:
    """Return the tools that are in the configuration; others are not even imported."""
    built_ins: dict[str, BuiltIn] = {}
    for name in TOOLS:
        section = getattr(foundation.config, name)
        if section is not None:
            module = import_module(f"serve_app.operations.{_IN_FOLDERS.get(name, name)}")
            built_ins[name] = module.create_built_in(section, foundation)
    return Tooling(built_ins, foundation.closing)
