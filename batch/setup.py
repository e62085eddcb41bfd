"""What the processes that work on batches are made from: values that travel to them, and how they turn into workers."""

import hashlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from ray import serve

from batch.config import BatchConfig
from batch.stores import Stores, open_stores
from batch.worker import LineWorker
from deployments.models.client.remote import RemoteEngine
from deployments.models.config import ModelConfig
from deployments.state.config import ResolvedState
from deployments.tools.config import ToolsConfig
from serve_app.operations.assembly import assemble
from serve_app.operations.safety.policy import SafetyConfig
from serve_app.telemetry.log import error_logger
from serve_app.telemetry.ray_metrics import ClusterCounts


@dataclass(frozen=True)
class ModelPlace:
    """A model, the Serve deployment behind it, and the policy that it keeps."""

    model: ModelConfig
    deployment: str
    application: str
    safety: SafetyConfig | None = None


@dataclass(frozen=True)
class BatchSetup:
    """Everything that a process needs to work on batches. Secrets stay out of its repr.

    `tool_places` are the deployment and the application behind each tool that has one, by the tool's type.
    """

    state: ResolvedState
    config: BatchConfig
    models: tuple[ModelPlace, ...]
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    tool_places: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Return a digest of it, without saying anything of its secrets."""
        state = self.state
        parts = [
            state.config.model_dump_json(),
            str(state.state_dir),
            state.database_url,
            state.object_store.url,
            hashlib.sha256(state.pepper + state.master_key).hexdigest(),
            self.config.model_dump_json(),
        ]
        for place in self.models:
            safety = "" if place.safety is None else place.safety.model_dump_json()
            parts += [place.model.model_dump_json(), place.deployment, place.application, safety]
        parts += [self.tools.model_dump_json(), repr(sorted(self.tool_places.items()))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    async def open_stores(self) -> Stores:
        """Return the stores, opened.

        Raises:
            ConfigError: the database or the object store cannot be used.
        """
        return await open_stores(self.state, self.config.max_unfinished_per_account)

    async def create_worker(self) -> LineWorker:
        """Return a worker over stores of its own.

        Raises:
            ConfigError: the database or the object store cannot be used.
        """
        engines = [(self._engine(place), place.model.aliases) for place in self.models]
        safety = {place.model.id: place.safety for place in self.models if place.safety is not None}
        handles = {name: serve.get_deployment_handle(*place) for name, place in self.tool_places.items()}
        stores = await self.open_stores()
        assembly = assemble(engines, safety, self.tools, handles, self.state, stores.database, stores.files)
        return LineWorker(stores, assembly.operations.by_path(), self.config, ClusterCounts().add)

    @staticmethod
    def _engine(place: ModelPlace) -> RemoteEngine:
        handle = serve.get_deployment_handle(place.deployment, place.application)
        return RemoteEngine(place.model.card, handle, place.model.scale_to_zero_wait_s)


def log_errors() -> None:
    """Write to the error stream what goes wrong in this process, without content."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    error_logger.addHandler(handler)
    error_logger.setLevel(logging.INFO)
