"""The set-up of batch processes: a value that travels to the coordinator and the workers, and creates their parts.

`serve_app.coordinator` builds it from the configuration.
"""

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
from deployments.models.price import Prices
from deployments.patience import Patience
from deployments.state.config import ResolvedState
from deployments.tools.config import ToolsConfig
from serve_app.operations.registry import assemble
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.operations.safety.policy import SafetyConfig
from serve_app.telemetry.log import error_logger
from serve_app.telemetry.ray_metrics import ClusterCounts
from serve_app.telemetry.tracing import Tracer, TracesConfig
from serve_app.validation.ignored import ClientsConfig


@dataclass(frozen=True)
class ModelPlace:
    """A model, its Serve deployment and application, and its safety policy."""

    model: ModelConfig
    deployment: str
    application: str
    safety: SafetyConfig | None = None


@dataclass(frozen=True)
class BatchSetup:
    """Everything that a batch process needs. Its repr shows no secrets.

    `tool_places` has the deployment and the application of each tool that is a deployment, by the tool's type.
    """

    state: ResolvedState
    config: BatchConfig
    models: tuple[ModelPlace, ...]
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    tool_places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    moderation: ModerationConfig | None = None
    traces: TracesConfig | None = None
    clients: ClientsConfig = field(default_factory=ClientsConfig)

    def create_tracer(self) -> Tracer | None:
        """Return the tracer of this process; None where traces are off."""
        return None if self.traces is None else Tracer(self.traces)

    def fingerprint(self) -> str:
        """Return a digest of the set-up that reveals no secrets."""
        state = self.state
        parts = [
            state.config.model_dump_json(),
            str(state.state_dir),
            state.database_url,
            state.object_store.url,
            repr(state.region),
            repr(state.patience),
            hashlib.sha256(state.pepper + state.master_key).hexdigest(),
            self.config.model_dump_json(),
        ]
        for place in self.models:
            safety = "" if place.safety is None else place.safety.model_dump_json()
            parts += [place.model.model_dump_json(), place.deployment, place.application, safety]
        moderation = "" if self.moderation is None else self.moderation.model_dump_json()
        parts += [self.tools.model_dump_json(), repr(sorted(self.tool_places.items())), moderation, repr(self.traces)]
        parts.append(self.clients.model_dump_json())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    async def open_stores(self) -> Stores:
        """Open the stores.

        Raises:
            ConfigError: the database or the object store cannot be used.
        """
        return await open_stores(self.state, self.config.max_unfinished_per_account)

    async def create_worker(self) -> LineWorker:
        """Return a worker with stores of its own.

        Raises:
            ConfigError: the database or the object store cannot be used.
        """
        engines = [(self._engine(place, self.state.patience), place.model.aliases) for place in self.models]
        safety = {place.model.id: place.safety for place in self.models if place.safety is not None}
        handles = {name: serve.get_deployment_handle(*place) for name, place in self.tool_places.items()}
        stores = await self.open_stores()
        assembly = assemble(
            engines,
            safety,
            self.tools,
            handles,
            self.state,
            stores.database,
            stores.files,
            self.moderation,
            self.clients,
        )
        prices = Prices({place.model.id: place.model.price for place in self.models})
        count = ClusterCounts().add_record
        tracer = self.create_tracer()
        operations = assembly.operations
        return LineWorker(
            stores, operations.by_path(), self.config, count, prices=prices, tracer=tracer, ignored=operations.ignored
        )

    @staticmethod
    def _engine(place: ModelPlace, patience: Patience) -> RemoteEngine:
        handle = serve.get_deployment_handle(place.deployment, place.application)
        model = place.model
        return RemoteEngine(model.card, handle, model.scale_to_zero_wait_s, model.resume_wait_s, patience)


def log_errors() -> None:
    """Write the error log of this process to its error stream; the log holds no content."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    error_logger.addHandler(handler)
    error_logger.setLevel(logging.INFO)
