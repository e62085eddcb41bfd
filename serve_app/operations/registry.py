"""Composes the operations and the tools of this service, over HTTP and in batches alike.

Both are found by name. `OPERATION` in `serve_app/operations/NAME.py` is the class of an operation that engines run;
`create_built_in` there, or in a folder's `tool.py`, creates a tool from its section of the configuration. An ingress
replica and a worker of batches each `assemble` their own, over connections of their own.
"""

import hmac
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from ray.serve.handle import DeploymentHandle

from deployments.models.client.directory import ConfiguredDirectory
from deployments.models.contract.engine import Engine, ModelDirectory
from deployments.operations import ENGINE_OPERATIONS, MODEL_OPERATIONS, TOOLS, Operation
from deployments.patience import USUAL, Patience
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database
from deployments.state.disk import DiskReserve, disk_reserve_of
from deployments.state.files.store import FileStore
from deployments.state.quotas import ItemQuota
from deployments.tools.code_interpreter.client import ServeChooser
from deployments.tools.config import ToolsConfig
from serve_app.operations.anthropic.operation import MessagesOperation
from serve_app.operations.chat import ChatOperation
from serve_app.operations.containers.service import Containers
from serve_app.operations.containers.tool import CodeInterpreter
from serve_app.operations.contract import DescribedOperation, RunnableOperation
from serve_app.operations.moderations import ModerationOperation
from serve_app.operations.responses.operation import ResponseOperation
from serve_app.operations.responses.prompt.preparation import Preparation
from serve_app.operations.responses.storage import Storage, storage_in
from serve_app.operations.responses.tools.contract import BuiltIn, BuiltIns, ToolResources
from serve_app.operations.routing import CacheSalt, cache_salts
from serve_app.operations.safety.moderation import ModerationConfig, Moderator
from serve_app.operations.safety.policy import SafetyConfig, SafetyPolicy, create_policies
from serve_app.operations.stored_chats import ChatKeeper
from serve_app.operations.tokenize import TokenizeOperation
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.operations.vector_stores.tool import FileSearchBuiltIn
from serve_app.validation.ignored import NOTHING, ClientsConfig, Ignored, ignored_by

_IN_FOLDERS = {
    Operation.CODE_INTERPRETER: "containers.tool",
    Operation.FILE_SEARCH: "vector_stores.tool",
    Operation.WEB_SEARCH: "web_search.tool",
}


class EngineOperation(DescribedOperation, Protocol):
    """The class of an operation that engines run."""

    def __call__(
        self, directory: ModelDirectory, salt: CacheSalt, policies: Mapping[str, SafetyPolicy] | None = None
    ) -> RunnableOperation[Any]:
        """Return the operation over a model directory; `policies` are by model id."""


def find_engine_operation(name: Operation) -> EngineOperation:
    """Return the class of an operation that engines run. Raises ImportError if it has no module."""
    return cast(EngineOperation, import_module(f"serve_app.operations.{name}").OPERATION)


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of this service; `ignored` is dropped from a body before it is read."""

    by_name: Mapping[Operation, RunnableOperation[Any]]
    ignored: Ignored = NOTHING

    @property
    def messages(self) -> MessagesOperation:
        """The operation behind /v1/messages."""
        chat = cast(ChatOperation, self.by_name[Operation.CHAT])
        return MessagesOperation(chat, cast(TokenizeOperation, self.by_name[Operation.TOKENIZE]))

    @property
    def responses(self) -> ResponseOperation:
        """The operation behind /v1/responses."""
        return cast(ResponseOperation, self.by_name[Operation.RESPONSES])

    def by_path(self) -> Mapping[str, RunnableOperation[Any]]:
        """Return the operations by their URL path, with its version."""
        return {about.path: self.by_name[name] for name, about in MODEL_OPERATIONS.items() if name in self.by_name}


def create_operations(
    directory: ModelDirectory,
    salt: CacheSalt,
    policies: Mapping[str, SafetyPolicy] | None = None,
    storage: Storage | None = None,
    built_ins: BuiltIns | None = None,
    moderation: ModerationConfig | None = None,
    patience: Patience = USUAL,
    clients: ClientsConfig | None = None,
) -> Operations:
    """Return the operations over a model directory; `policies` are by model id.

    Without a `storage` there are no responses, and chats are not stored. `built_ins` are the service's own tools.
    Without `moderation` every moderation is refused.
    """
    by_name = {name: find_engine_operation(name)(directory, salt, policies) for name in ENGINE_OPERATIONS}
    moderator = None if moderation is None else Moderator(moderation, directory)
    by_name[Operation.MODERATIONS] = ModerationOperation(moderator, salt)
    if storage is not None:
        by_name[Operation.CHAT] = chat = ChatOperation(directory, salt, policies, ChatKeeper(storage).keep)
        preparation = Preparation(directory, storage, built_ins)
        by_name[Operation.RESPONSES] = ResponseOperation(chat, preparation, storage, patience)
    return Operations(by_name, ignored_by(clients or ClientsConfig(), built_ins or ()))


@dataclass(frozen=True, slots=True)
class Tooling:
    """The tools that are switched on, by type; `closing` closes their connections."""

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


def create_tooling(resources: ToolResources) -> Tooling:
    """Return the tools in the configuration; others are not imported."""
    built_ins: dict[str, BuiltIn] = {}
    for name in TOOLS:
        section = getattr(resources.config, name)
        if section is not None:
            module = import_module(f"serve_app.operations.{_IN_FOLDERS.get(name, name)}")
            built_ins[name] = module.create_built_in(section, resources)
    return Tooling(built_ins, resources.closing)


@dataclass(frozen=True, slots=True)
class Assembly:
    """The operations, and what they share with other parts of the process."""

    directory: ConfiguredDirectory
    disk: DiskReserve
    storage: Storage
    tooling: Tooling
    operations: Operations


def assemble(
    engines: Sequence[tuple[Engine, Sequence[str]]],
    safety: Mapping[str, SafetyConfig],
    tools: ToolsConfig,
    tool_handles: Mapping[str, DeploymentHandle],
    state: ResolvedState,
    database: Database,
    files: FileStore,
    moderation: ModerationConfig | None = None,
    clients: ClientsConfig | None = None,
) -> Assembly:
    """Return the operations over engines, each with its model's aliases.

    `safety` has policies by model id, `tool_handles` the deployments of tools by type.
    """
    directory = ConfiguredDirectory(engines)
    # Batches have the same salt, so that they find the cached prefixes of requests.
    salt = cache_salts(hmac.digest(state.pepper, b"prefix cache", "sha256"), state.config.tiers)
    disk = disk_reserve_of(state)
    storage = storage_in(database, files, ItemQuota(database, state.config.tiers, disk), state.region_name)
    choosers = {name: ServeChooser(handle) for name, handle in tool_handles.items()}
    tooling = create_tooling(ToolResources(tools, database, files, directory, salt, state.object_store, choosers))
    policies = create_policies(safety, directory)
    operations = create_operations(
        directory, salt, policies, storage, tooling.built_ins, moderation, state.patience, clients
    )
    return Assembly(directory, disk, storage, tooling, operations)
