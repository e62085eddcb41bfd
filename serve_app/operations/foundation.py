"""What `create_built_in` of each tool gets; the same at both doors."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from deployments.models.contract.engine import ModelDirectory
from deployments.state.database.connection import Database
from deployments.state.files.store import FileStore
from deployments.state.objects.config import ResolvedObjectStore
from deployments.tools.code_interpreter.client import ServeChooser
from deployments.tools.config import ToolsConfig
from serve_app.operations.routing import CacheSalt


@dataclass(frozen=True, slots=True)
class Foundation:
    """What tools are made from: their configuration, the stores, the models, and the object store.

    `choosers` lead to the deployments of tools that have one, by type. A tool registers on `closing` what it opens.
    """

    config: ToolsConfig
    database: Database
    files: FileStore
    directory: ModelDirectory
    salt: CacheSalt
    place: ResolvedObjectStore
    choosers: Mapping[str, ServeChooser] = field(default_factory=dict)
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
