"""The operations of this service with all that they are made from: the same at both doors.

An ingress replica and a worker of batches each assemble theirs, over connections of their own.
"""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ray.serve.handle import DeploymentHandle

from deployments.models.client.directory import ConfiguredDirectory
from deployments.models.contract.engine import Engine
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database
from deployments.state.disk import DiskReserve, disk_reserve_of
from deployments.state.files.store import FileStore
from deployments.state.item_quota import ItemQuota
from deployments.tools.code_interpreter.client import ServeChooser
from deployments.tools.config import ToolsConfig
from serve_app.operations.built_ins import Tooling, create_tooling
from serve_app.operations.foundation import Foundation
from serve_app.operations.registry import Operations, create_operations
from serve_app.operations.responses.storage.stores import Storage, storage_in
from serve_app.operations.routing import cache_salts
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.operations.safety.policy import SafetyConfig, create_policies


@dataclass(frozen=True, slots=True)
class Assembly:
    """The operations, and what they share with other parts of a process."""

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
) -> Assembly:
    """Return the operations over engines, each with its model's aliases.

    `safety` holds the policy of each model that has one, by model id, `tool_handles` the deployment of each tool that
    has one, by type.
    """
    directory = ConfiguredDirectory(engines)
    # One salt at both doors, so that the lines of batches find the prefixes that requests have left in the caches.
    salt = cache_salts(hmac.digest(state.pepper, b"prefix cache", "sha256"), state.config.tiers)
    disk = disk_reserve_of(state)
    storage = storage_in(database, files, ItemQuota(database, state.config.tiers, disk), state.region_name)
    choosers = {name: ServeChooser(handle) for name, handle in tool_handles.items()}
    tooling = create_tooling(Foundation(tools, database, files, directory, salt, state.object_store, choosers))
    policies = create_policies(safety, directory)
    operations = create_operations(directory, salt, policies, storage, tooling.built_ins, moderation, state.patience)
    return Assembly(directory, disk, storage, tooling, operations)
