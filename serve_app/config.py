"""The configuration of the whole service: the `args:` of the Serve application, with a section for each package."""

from collections import Counter
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from batch.config import BatchConfig
from deployments.channel.tls import TlsConfig
from deployments.config import Section
from deployments.models.config import ModelConfig
from deployments.operations import Operation
from deployments.state.config import StateConfig
from deployments.state.identity.tiers import Tiers
from deployments.state.regions.config import RegionConfig
from deployments.tools.config import ToolsConfig
from serve_app.operations.safety.moderation import ModerationConfig
from serve_app.operations.safety.policy import SafetyConfig
from serve_app.telemetry.tracing import TelemetryConfig
from serve_app.validation.ignored import ClientsConfig


class ServedModel(ModelConfig):
    """A model deployment, and the safety policy of its prompts and answers."""

    safety: SafetyConfig | None = None


class ClientTlsConfig(Section):
    """TLS for clients. `manta serve` and `manta front` read the files again when they change.

    Args:
        certificate: the certificate with its chain, in PEM.
        key: its key, in PEM, without a password.
    """

    certificate: Path
    key: Path


class HttpConfig(Section):
    """What clients connect to: TLS, and bounds on request bodies and connections.

    Args:
        tls: the certificate that clients see. `--tls-certificate` and `--tls-key` override it, `--plain-http` turns it
            off. Without it the front listens for plain HTTP. TLS between the parts of the service is the section `tls`
            at the top.
        max_body_bytes: the largest body. Uploads of files have limits of their own. The waiting messages of all of an
            account's WebSockets together have the same limit; a single message may have at most 16 MiB.
        receive_timeout_s: how long a body may take to arrive.
        min_bytes_per_s: for each of this many bytes that have arrived, a large body may take a second longer.
        max_connections_per_address: how many connections one address, or one 64-bit network of IPv6, may have if the
            front itself speaks TLS. Further connections are closed at once. null for no limit. Raise it if more
            clients than that share an address.
        max_sockets_per_account: how many WebSocket connections one account may have with each ingress replica.
        trusted_proxies: addresses and networks whose connections are not counted, such as a load balancer before the
            front that passes TLS through, and the fronts of other regions.
        stream_comment_s: after how much silence a stream sends a comment, which clients ignore and load balancers count
            as traffic. null for no comments.
        cors_origins: the origins of web pages that may call the service from a browser, such as
            `https://chat.example.com`, or `*` for all pages. By default there are none.
    """

    tls: ClientTlsConfig | None = None
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)
    receive_timeout_s: float = Field(default=30.0, gt=0)
    min_bytes_per_s: float = Field(default=64 * 1024, gt=0)
    max_connections_per_address: int | None = Field(default=4096, ge=1)
    max_sockets_per_account: int = Field(default=32, ge=1)
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    stream_comment_s: float | None = Field(default=10.0, gt=0)
    cors_origins: tuple[Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$")], ...] = ()


class IngressConfig(Section):
    """The ingress deployment, with Ray's own setting names.

    Args:
        num_cpus: how many CPUs one replica reserves.
        max_ongoing_requests: how many requests one replica takes at once. The last eighth of the places for model calls
            is for accounts that use less than an equal part of them.
        drain_s: how long a stopping replica waits for its running requests.
        autoscaling_config: Ray's `autoscaling_config`.
    """

    num_cpus: float = Field(default=0.1, ge=0)
    max_ongoing_requests: int = Field(default=2000, ge=1)
    drain_s: float = Field(default=120.0, ge=0, le=3600)
    autoscaling_config: dict[str, Any] = Field(
        default_factory=lambda: {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 400}
    )


class ServiceConfig(Section):
    """The whole configuration.

    Args:
        currency: the currency of all prices, as ISO 4217 names it.
        patience: a factor for the timeouts between the parts of the service, for slow or overloaded machines. The page
            "Timings" lists the timeouts.
    """

    state: StateConfig = StateConfig()
    region: RegionConfig | None = None
    tls: TlsConfig | None = None
    http: HttpConfig = HttpConfig()
    ingress: IngressConfig = IngressConfig()
    clients: ClientsConfig = ClientsConfig()
    batches: BatchConfig = BatchConfig()
    tools: ToolsConfig = ToolsConfig()
    moderation: ModerationConfig | None = None
    telemetry: TelemetryConfig = TelemetryConfig()
    currency: str = Field(default="usd", pattern=r"^[a-z]{3}$")
    patience: float = Field(default=1.0, ge=1, le=100)
    models: tuple[ServedModel, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, given: Any) -> Any:
        return _move_enqueued_tokens(given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _names_are_unique(self) -> "ServiceConfig":
        named: list[ServedModel | ModerationConfig] = [*self.models, *([self.moderation] if self.moderation else [])]
        names = Counter(name for model in named for name in {model.id, *model.aliases})
        twice = sorted(name for name, count in names.items() if count > 1)
        if twice:
            raise ValueError(f"models: {', '.join(twice)} names more than one model; ids and aliases must differ")
        ids = {model.id for model in self.models}
        for model in self.models:
            guard = model.safety.guard_model if model.safety else None
            if guard is not None and guard not in ids:
                raise ValueError(f"models: the guard_model {guard} of {model.id} is not among the models")
        guard = self.moderation.guard_model if self.moderation else None
        if guard is not None and guard not in ids:
            raise ValueError(f"moderation: the guard_model {guard} is not among the models")
        return self

    @model_validator(mode="after")
    def _files_can_be_embedded(self) -> "ServiceConfig":
        if self.tools.file_search is not None:
            wanted = self.tools.file_search.embedding_model
            able = [model.id for model in self.models if Operation.EMBEDDINGS in model.card.operations]
            if wanted not in able:
                raise ValueError(
                    f"tools.file_search.embedding_model: {wanted} is not one of the models with embeddings"
                    f" ({', '.join(able) or 'there are none'})"
                )
        return self


def _move_enqueued_tokens(given: dict[str, Any]) -> dict[str, Any]:
    """Move the former setting `batches.enqueued_tokens` to each tier, where it is now.

    Raises:
        ValueError: there is no such tier, or it has both settings.
    """
    match given.get("batches"):
        case {"enqueued_tokens": dict(by_tier), **batches}:
            state = given.get("state") or {}
        case _:
            return given
    tiers = (state.get("tiers") or {}) if isinstance(state, dict) else None
    if not isinstance(tiers, dict) or not all(isinstance(limits, dict) for limits in tiers.values()):
        return given  # Validation refuses these later.
    moved = {name: dict(limits) for name, limits in tiers.items()}
    for name, tokens in by_tier.items():
        if name not in tiers and name not in Tiers().names:
            raise ValueError(f"batches.enqueued_tokens.{name}: there is no such tier in state.tiers")
        if "enqueued_tokens" in tiers.get(name, {}):
            now = f"state.tiers.{name}.enqueued_tokens"
            raise ValueError(f"batches.enqueued_tokens.{name}: is now called {now}, which is set too")
        moved[name] = {**moved.get(name, {}), "enqueued_tokens": tokens}
    return {**given, "batches": batches, "state": {**state, "tiers": moved}}
