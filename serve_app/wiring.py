"""Creates everything that an ingress replica runs with, in this order: each object is made from those above it.

`ingress` calls `wire` once. Nothing serves or watches before `Wired.watch`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, Protocol

import ray
from ray.serve.handle import DeploymentHandle
from sqlalchemy import select

from deployments.limits.actor import RayTransport
from deployments.limits.client.gatekeeper_client import GatekeeperClient
from deployments.limits.client.key_cache import StoredKeys
from deployments.limits.client.record_journal import open_journal
from deployments.limits.client.request_log import ShippedRequestLog
from deployments.limits.journal import share_of
from deployments.limits.orphaned_records import RECENT_S, OrphanedNodes, OrphanedRecords
from deployments.limits.snapshots import used_in_minute
from deployments.models.client.directory import ModelStartup
from deployments.models.client.remote import RemoteEngine
from deployments.models.price import Prices
from deployments.operations import Operation
from deployments.proof import FrontTrust, RegionTrust
from deployments.state.audit_log import AuditLog
from deployments.state.batches.store import BatchStore
from deployments.state.config import ResolvedState
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.database.connection import Database, connect
from deployments.state.encryption.vault import Vault
from deployments.state.files.store import FileStore
from deployments.state.identity.key_store import KeyStore
from deployments.state.ingress_replicas import IngressRegister
from deployments.state.objects.marker import MARKER_KEY, open_objects
from deployments.state.objects.pair import PairedStore
from deployments.state.uploads.store import UploadStore
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.request_log import RequestLogReader
from deployments.state.webhooks.queue import DeliveryQueue
from deployments.state.webhooks.store import WebhookStore
from deployments.webhooks import WebhookSender
from serve_app.config import ServiceConfig
from serve_app.front.ingress import CertificateRenewal, Registration, own_address
from serve_app.front.middleware import QuotaLender, ReplicaStatus
from serve_app.http.admission import Admission
from serve_app.http.body_limits import BodyLimits
from serve_app.http.connections import SocketPlaces
from serve_app.http.sse import Silence
from serve_app.operations.registry import assemble
from serve_app.operations.responses.background.runner import BackgroundRunner
from serve_app.operations.vector_stores.indexing import Indexer
from serve_app.services import BatchBounds, Services
from serve_app.telemetry.cluster import ServeView
from serve_app.telemetry.parts import PartsWatcher, RegionWatcher
from serve_app.telemetry.ray_metrics import ClusterMetrics
from serve_app.telemetry.series import PrometheusMetrics
from serve_app.telemetry.trace import Observer
from serve_app.telemetry.tracing import Tracer


class Background(Protocol):
    """Something that runs beside requests."""

    def watch(self) -> None:
        """Start it."""

    async def close(self) -> None:
        """Stop it."""


@dataclass(frozen=True, slots=True)
class Wired:
    """The services of the routes, and everything that runs beside them; `closing` ends all of it."""

    services: Services
    beside: Sequence[Background]
    registration: Registration
    front_trust: FrontTrust
    regions: RegionWatcher | None
    lender: QuotaLender | None
    closing: AsyncExitStack

    def watch(self) -> None:
        """Start everything that runs beside requests."""
        for one in self.beside:
            one.watch()

    def status(self) -> ReplicaStatus:
        """Return what fronts learn of this replica and its region."""
        is_drained = self.regions is not None and self.regions.is_drained
        return ReplicaStatus(self.services.region, self.services.startup.is_ready, is_drained)


async def wire(
    config: ServiceConfig,
    state: ResolvedState,
    handles: Mapping[str, DeploymentHandle],
    tools: Mapping[str, DeploymentHandle],
    wake_batches: Callable[[], None],
) -> Wired:
    """Return the services, given the deployments' handles by model id and by tool.

    While the database has no primary, or the object store belongs to another database, it waits: Serve would restart a
    failing replica again and again, with minutes between.

    Raises:
        ConfigError: the database cannot be used.
    """
    # What is stored.
    database = await connect(state.database_url, state.patience, is_patient=True)
    vault = Vault(database, state.master_key)
    objects = await open_objects(database, state.object_store, is_patient=True)
    files = FileStore(database, objects, vault)
    keys = KeyStore(database, state.pepper, state.config.tiers)

    # The gatekeeper: keys, limits, the request log.
    transport = RayTransport(patience=state.patience)
    stored_keys = StoredKeys(keys, state.patience)
    gatekeeper = GatekeeperClient(
        transport, state.pepper, stored_keys=stored_keys, share=share_of(state), patience=state.patience
    )
    records_dir = state.state_dir / "records"
    request_log = ShippedRequestLog(transport, journal=open_journal(records_dir), patience=state.patience)
    orphaned_records = OrphanedRecords(records_dir, transport)
    metrics = PrometheusMetrics()
    cluster_metrics = ClusterMetrics(metrics)
    tracer = Tracer(config.telemetry.traces) if config.telemetry.traces else None
    prices = Prices({model.id: model.price for model in config.models})
    observer = Observer(request_log, cluster_metrics, prices, tracer)

    # The models, and the operations over them.
    engines = [
        RemoteEngine(model.card, handles[model.id], model.scale_to_zero_wait_s, model.resume_wait_s, state.patience)
        for model in config.models
    ]
    with_models = list(zip(engines, config.models, strict=True))
    safety = {model.id: model.safety for model in config.models if model.safety is not None}
    aliases = [(engine, model.aliases) for engine, model in with_models]
    assembly = assemble(aliases, safety, config.tools, tools, state, database, files, config.moderation, config.clients)
    operations, search = assembly.operations, assembly.tooling.file_search
    containers = assembly.tooling.containers

    # What runs beside requests.
    startup = ModelStartup([engine for engine, model in with_models if model.is_kept_running])
    background = BackgroundRunner(operations.responses, assembly.storage, gatekeeper, observer)
    indexer = (
        Indexer(search.service, search.indexes, search.embedder, gatekeeper, observer, region=state.region_name)
        if search
        else None
    )
    ingresses = IngressRegister(database, region=state.region_name)
    renewal = CertificateRenewal(config.tls.certificate, config.tls.key) if config.tls is not None else None
    registration = Registration(ingresses, partial(own_address, ray.util.get_node_ip_address()))
    living = partial(ingresses.living, RECENT_S)
    orphaned_nodes = OrphanedNodes(records_dir, registration.own, living, patience=state.patience)
    parts = PartsWatcher(
        {
            "database": partial(database.read_at_once, lambda connection: connection.execute(select(1))),
            "object store": partial(objects.read, MARKER_KEY, 0, 1),
            "gatekeeper": transport.shares,
        },
        lambda: {engine.card.id: engine.num_moved for engine in engines},
        cluster_metrics,
        objects if isinstance(objects, PairedStore) else None,
        DeliveryQueue(database, vault),
    )
    webhook_sender = WebhookSender(config.tools.outbound.rules)

    regions = lender = None
    if state.region is not None:
        lender = QuotaLender(state.region.name, RegionTrust.from_pepper(state.pepper), transport.lend)

        def facts() -> dict[str, Any]:
            health = "up" if startup.is_ready else "starting"
            return {"version": version("manta"), "replicas": len(registration.others()), "health": health}

        regions = RegionWatcher(state.region.name, database, facts, cluster_metrics, shares=transport.shares)

    # Closed in reverse order: first the work, then the connections that it uses.
    closing = AsyncExitStack()
    closing.push_async_callback(assembly.tooling.aclose)
    if tracer is not None:
        closing.push_async_callback(asyncio.to_thread, tracer.close)
    closing.push_async_callback(webhook_sender.aclose)
    for engine in engines:
        closing.callback(engine.close)
    closing.callback(transport.close)
    closing.push_async_callback(_close_connections, request_log, gatekeeper, database)
    every: tuple[Background | None, ...] = (
        indexer,
        background,
        startup,
        registration,
        renewal,
        parts,
        orphaned_records,
        orphaned_nodes,
        regions,
    )
    beside = [one for one in every if one is not None]
    for one in beside:
        closing.push_async_callback(one.close)

    services = Services(
        gatekeeper=gatekeeper,
        directory=assembly.directory,
        admission=Admission(gatekeeper, state.patience, config.ingress.max_ongoing_requests),
        operations=operations,
        observer=observer,
        metrics=metrics,
        keys=keys,
        files=files,
        uploads=UploadStore(database, files),
        batches=BatchStore(database, vault, config.batches.max_unfinished_per_account),
        background=background,
        webhooks=WebhookStore(database, vault),
        webhook_sender=webhook_sender,
        wake_batches=wake_batches,
        containers=containers,
        file_search=search,
        file_rules=state.config.files,
        tiers=state.config.tiers,
        cors_origins=config.http.cors_origins,
        silence=Silence(state.patience.stream_begins_s, config.http.stream_comment_s),
        body_bounds=BodyLimits(config.http.max_body_bytes, config.http.receive_timeout_s, config.http.min_bytes_per_s),
        sockets=SocketPlaces(config.http.max_sockets_per_account, config.http.max_body_bytes),
        startup=startup,
        usage=UsageReader(database),
        request_log=RequestLogReader(database),
        audit=AuditLog(database),
        used_in_minute=partial(used_in_minute, database),
        prices=prices,
        currency=config.currency,
        region=state.region_name,
        console=ConsoleSessions(database),
        cluster=ServeView({} if containers is None else {Operation.CODE_INTERPRETER: containers.find_problem}),
        disk=assembly.disk,
        batch_bounds=BatchBounds(config.batches.max_requests, config.batches.max_line_bytes),
    )
    return Wired(services, beside, registration, FrontTrust.from_pepper(state.pepper), regions, lender, closing)


async def _close_connections(request_log: ShippedRequestLog, gatekeeper: GatekeeperClient, database: Database) -> None:
    """Send what is still queued, and disconnect. A failure of one does not keep the others open."""
    closing = (request_log.close(), gatekeeper.close(), database.close())
    await asyncio.gather(*closing, return_exceptions=True)
