"""What a route may use, in one value; tests fill it with twins, the ingress with what it was bound to."""

from dataclasses import dataclass, field
from typing import Protocol

from deployments.models.engine import ModelDirectory
from deployments.state.protocol import Gatekeeper
from serve_app.admission import Admission
from serve_app.middleware import BodyBounds
from serve_app.observability import Observer
from serve_app.operations.registry import Operations


class MetricsPage(Protocol):
    """Measurements as a scraper reads them."""

    content_type: str

    def render(self) -> bytes:
        """Return the page."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """The objects behind the routes. `keys` is None where keys are not administered over HTTP."""

    gatekeeper: Gatekeeper
    directory: ModelDirectory
    admission: Admission
    operations: Operations
    observer: Observer
    metrics: MetricsPage
    body_bounds: BodyBounds = field(default_factory=BodyBounds)
