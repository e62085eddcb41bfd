"""The ingress deployment: from the handles it is bound to, to the services behind the routes.

One process per replica; replicas share nothing but the gatekeeper, the database and the models.
"""

import asyncio
import gc
import hmac
import sys
from typing import Any

from ray.serve.handle import DeploymentHandle
from starlette.types import ASGIApp

from batch.actor import CoordinatorBell, start_coordinator
from batch.setup import BatchSetup, ModelPlace
from deployments.limits.actor import RayTransport, start_gatekeeper
from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.log_handlers import keep_handlers_open
from deployments.models.client.directory import ConfiguredDirectory
from deployments.models.client.remote import RemoteEngine
from deployments.models.client.startup import ModelStartup
from deployments.state.batches.store import BatchStore
from deployments.state.config import ResolvedState
from deployments.state.database.connection import connect
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.identity.key_store import KeyStore
from deployments.state.objects.marker import open_objects
from deployments.tools.code_interpreter.client import ServeChooser
from serve_app.asgi import create_asgi_app
from serve_app.config import ServiceConfig
from serve_app.http.admission import Admission
from serve_app.http.middleware import BodyLimits
from serve_app.http.request_ids import OwnRequestIds
from serve_app.operations.built_ins import create_tooling
from serve_app.operations.foundation import Foundation
from serve_app.operations.registry import create_operations
from serve_app.operations.responses.background.runner import BackgroundRunner
from serve_app.operations.responses.storage.stores import storage_in
from serve_app.operations.routing import cache_salts
from serve_app.operations.safety.policy import create_policies
from serve_app.operations.vector_stores.indexing import Indexer
from serve_app.services import Services
from serve_app.telemetry.log import log_to
from serve_app.telemetry.observer import Observer
from serve_app.telemetry.prometheus import PrometheusMetrics
from serve_app.telemetry.ray_metrics import ClusterMetrics


def _batch_setup(
    config: ServiceConfig,
    state: ResolvedState,
    handles: dict[str, DeploymentHandle],
    tools: dict[str, DeploymentHandle],
) -> BatchSetup:
    places = [
        ModelPlace(model, handles[model.id].deployment_name, handles[model.id].app_name, model.safety)
        for model in config.models
    ]
    tool_places = {name: (handle.deployment_name, handle.app_name) for name, handle in tools.items()}
    return BatchSetup(state, config.batches, tuple(places), config.tools, tool_places)


class Ingress:
    """One ingress replica. Serve asks it for its ASGI application once."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it.
        self,
        config: ServiceConfig,
        state: ResolvedState,
        handles: dict[str, DeploymentHandle],
        tools: dict[str, DeploymentHandle],
        batch_handles: dict[str, DeploymentHandle],
    ) -> None:
        """Take the configuration, its secrets, and a handle for each model id and for each tool's type.

        `batch_handles` are those of the models that have replicas of their own for batches.
        """
        keep_handlers_open()
        await asyncio.to_thread(start_gatekeeper, state)
        await asyncio.to_thread(start_coordinator, _batch_setup(config, state, {**handles, **batch_handles}, tools))
        self._transport = RayTransport()
        self._gatekeeper = GatekeeperClient(self._transport)
        self._database = await connect(state.database_url)
        self._engines = [
            RemoteEngine(model.card, handles[model.id], model.scale_to_zero_wait_s) for model in config.models
        ]
        kept = [engine for engine, model in zip(self._engines, config.models, strict=True) if model.is_kept_running]
        self._startup = ModelStartup(kept)
        self._request_log = ShippedRequestLog(self._transport)
        aliases = [model.aliases for model in config.models]
        directory = ConfiguredDirectory(zip(self._engines, aliases, strict=True))
        policies = {model.id: model.safety for model in config.models if model.safety is not None}
        metrics = PrometheusMetrics()
        vault = Vault(self._database, state.master_key)
        files = FileStore(self._database, await open_objects(self._database, state.object_store), vault)
        choosers = {name: ServeChooser(handle) for name, handle in tools.items()}
        salt = cache_salts(hmac.digest(state.pepper, b"prefix cache", "sha256"))
        foundation = Foundation(config.tools, self._database, files, directory, salt, state.object_store, choosers)
        self._tooling = create_tooling(foundation)
        storage = storage_in(self._database, vault, files)
        safety = create_policies(policies, directory)
        operations = create_operations(directory, salt, safety, storage, self._tooling.built_ins)
        observer = Observer(self._request_log, ClusterMetrics(metrics))
        self._background = BackgroundRunner(operations.responses, storage, self._gatekeeper, observer)
        search = self._tooling.file_search
        self._indexer = (
            Indexer(search.desk, search.index, search.embedder, self._gatekeeper, observer) if search else None
        )
        self._services = Services(
            gatekeeper=self._gatekeeper,
            directory=directory,
            admission=Admission(self._gatekeeper),
            operations=operations,
            observer=observer,
            metrics=metrics,
            background=self._background,
            keys=KeyStore(self._database, state.pepper, state.config.tiers),
            files=files,
            containers=self._tooling.containers,
            file_search=search,
            batches=BatchStore(self._database, vault, config.batches.max_unfinished_per_account),
            wake_batches=CoordinatorBell().ring,
            file_rules=state.config.files,
            tiers=state.config.tiers,
            body_bounds=BodyLimits(
                config.http.max_body_bytes, config.http.receive_timeout_s, config.http.min_bytes_per_s
            ),
            startup=self._startup,
        )

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application (called by Serve, after the constructor)."""
        log_to(sys.stderr)
        self._startup.watch()
        self._background.watch()
        if self._indexer is not None:
            self._indexer.watch()
        # What start-up made stays for good: without this the collector walks all of it again and again, and falls
        # into requests when it does (280 us a request against 197).
        gc.collect()
        gc.freeze()
        return OwnRequestIds(create_asgi_app(self._services))

    async def __del__(self) -> None:
        """Send what is still queued, and hand over background work (called by Serve on shutdown)."""
        await self._startup.close()
        await self._background.close()
        if self._indexer is not None:
            await self._indexer.close()
        closing: list[Any] = [self._request_log.close(), self._gatekeeper.close(), self._database.close()]
        await asyncio.gather(*closing, return_exceptions=True)
        self._transport.close()
        for engine in self._engines:
            engine.close()
        await self._tooling.aclose()
