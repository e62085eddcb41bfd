"""Everything that a route may use, in one object. `wiring` creates it for an ingress replica, tests with twins."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from deployments.limits.contract import Gatekeeper
from deployments.models.client.directory import ModelStartup
from deployments.models.contract.engine import ModelDirectory
from deployments.models.price import NO_PRICES, Prices
from deployments.state.audit_log import AuditLog
from deployments.state.batches.store import BatchStore
from deployments.state.config import FilesConfig
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.disk import DiskReserve
from deployments.state.files.store import FileStore
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.principal import Principal
from deployments.state.identity.tiers import Tiers
from deployments.state.uploads.rows import MAX_PART_BYTES
from deployments.state.uploads.store import UploadStore
from deployments.state.usage.reading import UsageReader
from deployments.state.usage.request_log import RequestLogReader
from deployments.state.webhooks.store import WebhookStore
from deployments.webhooks import WebhookSender
from serve_app.http.admission import Admission
from serve_app.http.auth import CallRate
from serve_app.http.body_limits import BodyLimits
from serve_app.http.connections import SocketPlaces
from serve_app.http.sse import Silence
from serve_app.operations.containers.service import Containers
from serve_app.operations.registry import Operations
from serve_app.operations.responses.background.runner import BackgroundRunner
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.telemetry.series import PrometheusMetrics
from serve_app.telemetry.trace import Observer

_FORM_BYTES = 64 * 1024
"""The overhead of a form: everything except its file."""


class BatchBounds(NamedTuple):
    """How many lines the input of a batch may have, and how long a line may be."""

    max_requests: int = 50_000
    max_line_bytes: int = 64 * 1024 * 1024


class ClusterView(Protocol):
    """The state of the cluster; `serve_app.telemetry.cluster` has the fields."""

    async def look(self) -> dict[str, Any]:
        """Return deployments, nodes and engines, for operators."""

    async def deployments(self) -> list[dict[str, Any]]:
        """Return the deployments alone, which takes less."""


@dataclass(frozen=True, slots=True)
class Services:
    """The objects behind the routes.

    `wake_batches` makes the batch coordinator look for new batches now. `used_in_minute` returns the requests and
    tokens that counted against each key's minute at a given time. `containers` is None if the code interpreter is off,
    `file_search` if file search is off, `console` and `cluster` if there is no console. `region` is empty if there is
    only one.
    """

    gatekeeper: Gatekeeper
    directory: ModelDirectory
    admission: Admission
    operations: Operations
    observer: Observer
    metrics: PrometheusMetrics
    keys: KeyStore
    files: FileStore
    uploads: UploadStore
    batches: BatchStore
    background: BackgroundRunner
    usage: UsageReader
    request_log: RequestLogReader
    audit: AuditLog
    used_in_minute: Callable[[Sequence[str], float], Awaitable[dict[str, tuple[int, int]]]]
    webhooks: WebhookStore
    webhook_sender: WebhookSender
    wake_batches: Callable[[], None] = lambda: None
    containers: Containers | None = None
    file_search: FileSearch | None = None
    file_rules: FilesConfig = field(default_factory=FilesConfig)
    tiers: Tiers = field(default_factory=Tiers)
    cors_origins: Sequence[str] = ()
    silence: Silence = field(default_factory=Silence)
    body_bounds: BodyLimits = field(default_factory=BodyLimits)
    sockets: SocketPlaces = field(default_factory=SocketPlaces)
    startup: ModelStartup = field(default_factory=ModelStartup)
    prices: Prices = NO_PRICES
    currency: str = "usd"
    region: str = ""
    console: ConsoleSessions | None = None
    cluster: ClusterView | None = None
    batch_bounds: BatchBounds = field(default_factory=BatchBounds)
    calls: CallRate = field(default_factory=CallRate)
    disk: DiskReserve = field(default_factory=DiskReserve)

    def count_call(self, principal: Principal) -> None:
        """Count a call of a key against its tier's `calls_per_minute`.

        Raises:
            RateLimited: the key has used them up in the last minute.
        """
        self.calls.count(principal, self.tiers.of(principal.tier).calls_per_minute)

    def file_rules_of(self, principal: Principal) -> FilesConfig:
        """Return the limits of files, including the total size that the key's account may store."""
        most = self.tiers.of(principal.tier).file_bytes
        if most is None or most >= self.file_rules.max_account_bytes:
            return self.file_rules
        return self.file_rules.model_copy(update={"max_account_bytes": most})

    def upload_bounds(self) -> BodyLimits:
        """Return the limits of an uploaded file: the usual timeouts, the largest file plus its form's overhead."""
        max_bytes = max(self.file_rules.max_file_bytes, self.file_rules.max_batch_file_bytes) + _FORM_BYTES
        return replace(self.body_bounds, max_bytes=max_bytes, param="file")

    def part_bounds(self) -> BodyLimits:
        """Return the limits of an upload's parts: the usual timeouts, the largest part plus its form's overhead."""
        return replace(self.body_bounds, max_bytes=MAX_PART_BYTES + _FORM_BYTES, param="data")
