"""The settings of one front, in a file that its processes read."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deployments.private_folder import make_private_folder, private_name
from serve_app.front.files import write_private
from serve_app.front.timings import USUAL, FrontTimings
from serve_app.front.trust import FrontTrust

NUM_PROXIES = 2
"""HAProxy processes that share the port: one answers while the other is started anew."""

_MAX_SOCKET_PATH = 80
_FILE = "front.json"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a certificate with its chain, and of its key, in PEM.

    On `redirect_port` plain HTTP is answered with the address over TLS; without one nothing listens there.
    """

    certificate: str
    key: str
    redirect_port: int | None = None


@dataclass(frozen=True, slots=True)
class IngressTls:
    """That ingress replicas speak TLS: the file of those whom their certificates are believed from, and the DNS name
    that each of them carries.
    """

    authority: str
    name: str


@dataclass(frozen=True, slots=True)
class AddressBound:
    """How many connections one address may have, None for any number; and addresses and networks that are not counted.

    Of IPv6, each network of 64 bits counts as one address.
    """

    max_connections: int | None = None
    trusted: tuple[str, ...] = ("127.0.0.0/8", "::1")


@dataclass(frozen=True, slots=True)
class OtherRegion:
    """Another region: its name, and the address where its fronts take clients, as a URL without a path.

    Over https its certificate has to name the URL's host.
    """

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """The region that a front belongs to, and the others, which take its requests when it is left.

    `authority` is the file of those whom the others' certificates are believed from; the system's where it is None.
    """

    name: str
    others: tuple[OtherRegion, ...] = ()
    authority: str | None = None

    @classmethod
    def of_region(cls, name: str, others: Mapping[str, str], authority: Path | None) -> "RegionSettings":
        """Return the settings of a region; `others` has the address of each other one by its name."""
        known = tuple(OtherRegion(other, address) for other, address in others.items())
        return cls(name, known, None if authority is None else str(authority))


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """One front.

    `host` and `port` are where clients come. `stats_port` and the ports after it, one for each HAProxy process, show
    metrics and statistics on loopback. Ingress replicas of this node are looked for on the ports from `min_port` to
    `max_port`. `seeds` are addresses of other fronts, `dashboard` is Ray's: both know more ingress replicas.
    Without `tls` clients speak plain HTTP. Without `region` there is only this one, and requests go nowhere else.
    Without `ingress_tls` ingress replicas are asked in plain HTTP.
    """

    run_dir: Path
    host: str
    port: int
    request_key: bytes = field(repr=False)
    proof_key: bytes = field(repr=False)
    stats_host: str = "127.0.0.1"
    stats_port: int = 8404
    min_port: int = 30_000
    max_port: int = 31_000
    num_slots: int = 64
    receive_timeout_s: float = 30.0
    address_bound: AddressBound = AddressBound()
    drain_s: float = 120.0
    seeds: tuple[str, ...] = ()
    dashboard: str | None = None
    tls: TlsFiles | None = None
    region: RegionSettings | None = None
    ingress_tls: IngressTls | None = None
    timings: FrontTimings = USUAL

    @classmethod
    def of_service(
        cls,
        state_dir: Path,
        pepper: bytes,
        *,
        host: str,
        port: int,
        stats_host: str,
        stats_port: int,
        receive_timeout_s: float,
        address_bound: AddressBound,
        drain_s: float,
        seeds: tuple[str, ...] = (),
        dashboard: str | None = None,
        tls: TlsFiles | None = None,
        region: RegionSettings | None = None,
        ingress_tls: IngressTls | None = None,
    ) -> "FrontSettings":
        """Return the settings of a front of the service with this pepper, whose files are in `state_dir`."""
        trust = FrontTrust.from_pepper(pepper)
        min_port, max_port = replica_ports()
        return cls(
            run_dir=choose_run_dir(state_dir),
            host=host,
            port=port,
            request_key=trust.request_key,
            proof_key=trust.proof_key,
            stats_host=stats_host,
            stats_port=stats_port,
            min_port=min_port,
            max_port=max_port,
            receive_timeout_s=receive_timeout_s,
            address_bound=address_bound,
            drain_s=drain_s,
            seeds=seeds,
            dashboard=dashboard,
            tls=tls,
            region=region,
            ingress_tls=ingress_tls,
        )

    @property
    def trust(self) -> FrontTrust:
        """The keys that this front shares with the ingress replicas."""
        return FrontTrust(self.request_key, self.proof_key)

    @property
    def table_path(self) -> Path:
        """Where the last known table is."""
        return self.run_dir / "table.json"

    @property
    def certificate_path(self) -> Path:
        """Where HAProxy reads the certificate with its key."""
        return self.run_dir / "certificate.pem"

    @property
    def believed(self) -> tuple[tuple[str, Path], ...]:
        """The operator's files of authorities, each with where HAProxy reads its copy."""
        files = []
        if self.region is not None and self.region.authority is not None:
            files.append((self.region.authority, self.region_authority_path))
        if self.ingress_tls is not None:
            files.append((self.ingress_tls.authority, self.ingress_authority_path))
        return tuple(files)

    @property
    def standing_path(self) -> Path:
        """Where it is written whether the region is left, and where the others are."""
        return self.run_dir / "region.json"

    @property
    def region_authority_path(self) -> Path:
        """Where HAProxy reads whom the other regions' certificates are believed from."""
        return self.run_dir / "regions.pem"

    @property
    def ingress_authority_path(self) -> Path:
        """Where HAProxy reads whom the ingress replicas' certificates are believed from."""
        return self.run_dir / "ingresses.pem"

    def leaving_path(self, number: int) -> Path:
        """Return where a HAProxy process hands itself the requests that go to other regions."""
        return self.run_dir / f"leaving-{number}.sock"

    def holding_path(self, number: int) -> Path:
        """Return where a HAProxy process hands itself the requests that wait for a replica."""
        return self.run_dir / f"holding-{number}.sock"

    def socket_path(self, number: int) -> Path:
        """Return where a HAProxy process takes commands."""
        return self.run_dir / f"haproxy-{number}.sock"

    def save(self) -> Path:
        """Write the settings into the run directory, for this user only; return the file.

        Raises:
            OSError: the directory cannot be made, or belongs to another user.
        """
        make_private_folder(self.run_dir)
        values = asdict(self) | {
            "run_dir": str(self.run_dir),
            "request_key": self.request_key.hex(),
            "proof_key": self.proof_key.hex(),
        }
        path = self.run_dir / _FILE
        write_private(path, json.dumps(values))
        return path


def load_settings(path: Path) -> FrontSettings:
    """Return what `save` has written.

    Raises:
        OSError, ValueError: there is nothing, or something else.
    """
    values = json.loads(path.read_text())
    values["run_dir"] = Path(values["run_dir"])
    values["seeds"] = tuple(values["seeds"])
    for name in ("request_key", "proof_key"):
        values[name] = bytes.fromhex(values[name])
    if values["tls"] is not None:
        values["tls"] = TlsFiles(**values["tls"])
    if (region := values["region"]) is not None:
        region["others"] = tuple(OtherRegion(**other) for other in region["others"])
        values["region"] = RegionSettings(**region)
    if values["ingress_tls"] is not None:
        values["ingress_tls"] = IngressTls(**values["ingress_tls"])
    bound = values["address_bound"]
    values["address_bound"] = AddressBound(bound["max_connections"], tuple(bound["trusted"]))
    values["timings"] = FrontTimings(**values["timings"])
    return FrontSettings(**values)


def choose_run_dir(state_dir: Path) -> Path:
    """Return the directory of a front's files; elsewhere than in a state directory too deep for Unix sockets."""
    run_dir = state_dir / "front"
    if len(str(run_dir)) <= _MAX_SOCKET_PATH:
        return run_dir
    return Path("/tmp") / private_name("manta-front", run_dir)  # noqa: S108 - Made for this user only, and checked.


def replica_ports(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return the first and last port on which Ray Serve lets ingress replicas listen."""
    first = environ.get("RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT", "30000")
    return int(first), int(environ.get("RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT", "31000"))


def supervisor_command(settings_path: Path) -> list[str]:
    """Return the command that runs the front whose settings are in a file."""
    return [sys.executable, "-m", "serve_app.front.supervisor", str(settings_path)]
