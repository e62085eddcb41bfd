"""What a route may use, in one value; tests fill it with twins, the ingress with what it was bound to."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from deployments.limits.contract import Gatekeeper
from deployments.models.client.startup import ModelStartup
from deployments.models.contract.engine import ModelDirectory
from deployments.state.batches.store import BatchStore
from deployments.state.files.store import FileStore
from deployments.state.identity.keys import ApiKey, KeyChange, NewKey
from deployments.state.identity.tiers import Tiers
from deployments.state.retention import FilesConfig
from serve_app.http.admission import Admission
from serve_app.http.middleware import BodyLimits
from serve_app.operations.containers.service import Containers
from serve_app.operations.registry import Operations
from serve_app.operations.responses.background import BackgroundRunner
from serve_app.operations.vector_stores.search import FileSearch
from serve_app.telemetry.observer import Observer

_FORM_BYTES = 64 * 1024
"""What a form may take beside the file in it."""


class MetricsPage(Protocol):
    """Measurements as a scraper reads them."""

    content_type: str

    def render(self) -> bytes:
        """Return the page."""
        ...


class KeyAdmin(Protocol):
    """The API keys of this service; kept by `identity.key_store.KeyStore`, which says what each raises."""

    async def create(self, new: NewKey) -> tuple[ApiKey, str]:
        """Issue a key; return it and its secret."""
        ...

    async def list_keys(self, account: str | None = None, *, include_revoked: bool = False) -> list[ApiKey]:
        """Return the keys, newest first."""
        ...

    async def show(self, key_id: str) -> ApiKey:
        """Return one key."""
        ...

    async def limit(self, key_id: str, change: KeyChange) -> ApiKey:
        """Change what was set in `change`; return the key."""
        ...

    async def rotate(self, key_id: str, overlap_s: float = 0.0) -> tuple[ApiKey, str]:
        """Give a key a new secret; return both."""
        ...

    async def revoke(self, key_id: str) -> ApiKey:
        """Take a key back; return it."""
        ...


def _do_nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Services:
    """The objects behind the routes. `wake_batches` says that there is something new for whoever runs batches.

    `containers` and `file_search` are None where the code interpreter and the search over files are switched off.
    """

    gatekeeper: Gatekeeper
    directory: ModelDirectory
    admission: Admission
    operations: Operations
    observer: Observer
    metrics: MetricsPage
    keys: KeyAdmin
    files: FileStore
    batches: BatchStore
    background: BackgroundRunner
    wake_batches: Callable[[], None] = _do_nothing
    containers: Containers | None = None
    file_search: FileSearch | None = None
    file_rules: FilesConfig = field(default_factory=FilesConfig)
    tiers: Tiers = field(default_factory=Tiers)
    body_bounds: BodyLimits = field(default_factory=BodyLimits)
    startup: ModelStartup = field(default_factory=ModelStartup)

    def upload_bounds(self) -> BodyLimits:
        """Return the bounds of the bodies that bring files: as slow as others, as large as the largest file's form."""
        max_bytes = max(self.file_rules.max_file_bytes, self.file_rules.max_batch_file_bytes) + _FORM_BYTES
        return replace(self.body_bounds, max_bytes=max_bytes, param="file")
