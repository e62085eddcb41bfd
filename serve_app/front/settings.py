"""The settings of one front, in a file that its processes read."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from deployments.files import write_private
from deployments.private_folder import make_private_folder, private_name
from deployments.proof import FrontTrust
from deployments.state.regions import ResolvedRegion
from serve_app.front.timings import USUAL, FrontTimings

NUM_PROXIES = 2
"""HAProxy processes that share the port: one answers while the other restarts."""

_MAX_SOCKET_PATH = 80
_FILE = "front.json"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate with its chain, and its key.

    Plain HTTP on `redirect_port` is redirected to TLS. Without a port, nothing listens for plain HTTP.
    """

    certificate: str
    key: str
    redirect_port: int | None = None


@dataclass(frozen=True, slots=True)
class IngressTls:
    """TLS to ingress replicas: the PEM file of the trusted authorities, and the DNS name in their certificates."""

    authority: str
    name: str


@dataclass(frozen=True, slots=True)
class AddressBound:
    """The max connections of one client address, None for no bound. Addresses in `trusted` networks are not counted.

    An IPv6 network of 64 bits counts as one address.
    """

    max_connections: int | None = None
    trusted: tuple[str, ...] = ("127.0.0.0/8", "::1")


def replica_ports(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the first and last port on which Ray Serve lets ingress replicas listen."""
    first = environ.get("RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT", "30000")
    return int(first), int(environ.get("RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT", "31000"))


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """One front, of the service whose pepper is behind `trust`.

    Clients connect to `host` and `port`. Metrics and statistics are on `stats_port` and the ports after it, one for
    each HAProxy process. The agent looks for ingress replicas of this node between `min_port` and `max_port`, and asks
    the fronts in `seeds` and Ray's `dashboard` for more. `ingress_tls` is None if ingress replicas speak plain HTTP,
    `tls` if clients do.
    """

    run_dir: Path
    host: str
    port: int
    trust: FrontTrust
    stats_host: str = "127.0.0.1"
    stats_port: int = 8404
    min_port: int = field(default_factory=lambda: replica_ports()[0])
    max_port: int = field(default_factory=lambda: replica_ports()[1])
    num_slots: int = 64
    receive_timeout_s: float = 30.0
    address_bound: AddressBound = AddressBound()
    drain_s: float = 120.0
    seeds: tuple[str, ...] = ()
    dashboard: str | None = None
    tls: TlsFiles | None = None
    region: ResolvedRegion | None = None
    ingress_tls: IngressTls | None = None
    timings: FrontTimings = USUAL

    @property
    def has_other_regions(self) -> bool:
        """Whether requests can be forwarded to another region."""
        return self.region is not None and bool(self.region.others)

    @property
    def table_path(self) -> Path:
        """The saved table of ingress replicas."""
        return self.run_dir / "table.json"

    @property
    def region_path(self) -> Path:
        """The saved state of the region, and the addresses of the others."""
        return self.run_dir / "region.json"

    @property
    def certificate_path(self) -> Path:
        """HAProxy's copy of the certificate with its key."""
        return self.run_dir / "certificate.pem"

    @property
    def region_authority_path(self) -> Path:
        """HAProxy's copy of the authorities trusted for other regions."""
        return self.run_dir / "regions.pem"

    @property
    def ingress_authority_path(self) -> Path:
        """HAProxy's copy of the authorities trusted for ingress replicas."""
        return self.run_dir / "ingresses.pem"

    @property
    def authorities(self) -> tuple[tuple[str, Path], ...]:
        """The operator's files of trusted authorities, each with the path of HAProxy's copy."""
        files = []
        if self.region is not None and self.region.certificate_authority is not None:
            files.append((str(self.region.certificate_authority), self.region_authority_path))
        if self.ingress_tls is not None:
            files.append((self.ingress_tls.authority, self.ingress_authority_path))
        return tuple(files)

    def forwarding_path(self, number: int) -> Path:
        """Return the socket on which a HAProxy process hands itself requests for other regions."""
        return self.run_dir / f"forwarding-{number}.sock"

    def queueing_path(self, number: int) -> Path:
        """Return the socket on which a HAProxy process hands itself requests that wait for a replica."""
        return self.run_dir / f"queueing-{number}.sock"

    def socket_path(self, number: int) -> Path:
        """Return the runtime socket of a HAProxy process."""
        return self.run_dir / f"haproxy-{number}.sock"

    def save(self) -> Path:
        """Write the settings into the run directory, for this user only; return the file.

        Raises:
            OSError: the directory cannot be created, or belongs to another user.
        """
        make_private_folder(self.run_dir)
        path = self.run_dir / _FILE
        write_private(path, msgspec.json.encode(self, enc_hook=str))
        return path


def load_settings(path: Path) -> FrontSettings:
    """Return the settings that `save` wrote.

    Raises:
        OSError, ValueError: the file is missing or holds something else.
    """
    return msgspec.json.decode(path.read_bytes(), type=FrontSettings, dec_hook=lambda _, text: Path(text))


def choose_run_dir(state_dir: Path) -> Path:
    """Return the directory of a front's files; outside of a state directory that is too deep for Unix sockets."""
    run_dir = state_dir / "front"
    if len(str(run_dir)) <= _MAX_SOCKET_PATH:
        return run_dir
    return Path("/tmp") / private_name("manta-front", run_dir)  # noqa: S108 - Created for this user only, and checked.


def supervisor_command(settings_path: Path) -> list[str]:
    """Return the command that runs the front with these settings."""
    return [sys.executable, "-m", "serve_app.front.supervisor", str(settings_path)]
