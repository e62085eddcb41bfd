"""The front of `manta serve` and `manta front`: its ports, TLS and bounds, and its supervisor as a child process."""

import errno
import ipaddress
import os
import signal
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from deployments.config import ConfigError
from deployments.state.regions import ResolvedRegion
from serve_app.cli.supervise.process_tree import ProcessTree
from serve_app.config import HttpConfig, ServiceConfig
from serve_app.front.settings import NUM_PROXIES, AddressBound, FrontSettings, IngressTls, TlsFiles, supervisor_command

STATS_PORT_VARIABLE = "MANTA_FRONT_STATS_PORT"
STATS_HOST_VARIABLE = "MANTA_FRONT_STATS_HOST"
_STATS_PORT = 8404
_PROXY_PORTS = range(8500, 8600)
_NOT_PLAIN = (
    "Others can reach {host}, and without TLS they can read keys and answers on the way. Set http.tls in the "
    "configuration, or give --tls-certificate and --tls-key, or --plain-http if something before this front speaks TLS."
)


def front_stats_host(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address where the front's HAProxy processes show metrics and statistics."""
    return environ.get(STATS_HOST_VARIABLE, "127.0.0.1")


def front_stats_port(environ: Mapping[str, str] = os.environ) -> int:
    """Return the first of the ports for metrics and statistics."""
    return int(environ.get(STATS_PORT_VARIABLE, _STATS_PORT))


def front_stats_ports(environ: Mapping[str, str] = os.environ) -> range:
    """Return all ports for metrics and statistics."""
    first = front_stats_port(environ)
    return range(first, first + NUM_PROXIES)


def choose_proxy_port(taken: int) -> int:
    """Return a port for Serve's own proxy, which is not used: clients come to the front.

    Raises:
        OSError: no port is free.
    """
    for port in _PROXY_PORTS:
        if port != taken and is_free(port):
            return port
    raise OSError(f"No port from {_PROXY_PORTS.start} to {_PROXY_PORTS.stop - 1} is free for Ray Serve's proxy.")


def is_free(port: int) -> bool:
    """Return whether this process could listen on a port of all interfaces."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that listens on a port. `is_own` says that it is the front of the service in question."""

    name: str
    pid: int
    is_own: bool = False

    def __str__(self) -> str:
        return f"{self.name} (process {self.pid})"


def find_holder(port: int, run_dir: Path) -> Holder | None:
    """Return the process that listens on a port, None if this user may not see it; `run_dir` is that of our front."""
    try:
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                is_own = any(Path(word).parent == run_dir for word in process.cmdline())
                return Holder(process.name(), connection.pid, is_own)
    except psutil.Error:
        pass
    return None


def describe_taken(port: int, http_port: int, run_dir: Path) -> str:
    """Return who has a port that is needed, and what to do; `http_port` is the one for clients."""
    holder = find_holder(port, run_dir)
    if holder is not None and holder.is_own:
        return f"Port {port} is taken by {holder}: Manta runs here already. Stop it first. {_beside(http_port)}"
    taken = f"Port {port} is taken" if holder is None else f"Port {port} is taken by {holder}"
    if port == http_port:
        other = http_port + 1
        return (
            f"{taken}. Stop that process, or choose another port: make serve PORT={other}, "
            f"manta serve --port {other}, or http_options.port in the configuration."
        )
    instead = f"set {STATS_PORT_VARIABLE} to another port"
    return f"{taken}. The load balancer's metrics need it. Stop that process, or {instead}."


def _beside(http_port: int) -> str:
    """Return how a second service starts beside the one that holds the ports."""
    variables = f"MANTA_STATE_DIR=.manta-2 {STATS_PORT_VARIABLE}={front_stats_ports().stop}"
    command = f"{variables} make serve PORT={http_port + 1}"
    return f"A second service beside it needs a directory and ports of its own: {command}"


def choose_tls(
    http: HttpConfig,
    certificate: Path | None,
    key: Path | None,
    redirect_port: int | None = None,
    *,
    plain_http: bool = False,
) -> TlsFiles | None:
    """Return the files of the front's certificate, None without one. Options override the configuration.

    Raises:
        ConfigError: an option is missing.
    """
    if (certificate is None) != (key is None):
        raise ConfigError("--tls-certificate and --tls-key go together.")
    if http.tls is not None and certificate is None and not plain_http:
        certificate, key = http.tls.certificate, http.tls.key
    if certificate is None or key is None:
        if redirect_port is not None:
            raise ConfigError("--redirect-port needs --tls-certificate and --tls-key, or http.tls.")
        return None
    return TlsFiles(str(certificate.absolute()), str(key.absolute()), redirect_port)


def check_encrypted(host: str, tls: TlsFiles | None, *, plain_http: bool) -> None:
    """Check that other machines reach the front over TLS only, unless --plain-http allows otherwise.

    Raises:
        ConfigError: they would reach it over plain HTTP.
    """
    if tls is None and not plain_http and not _is_loopback(host):
        raise ConfigError(_NOT_PLAIN.format(host=host))


def ingress_tls(config: ServiceConfig) -> IngressTls | None:
    """Return the TLS settings of ingress replicas, None if they use plain HTTP."""
    return None if config.tls is None else IngressTls(str(config.tls.authority.absolute()), config.tls.name)


def choose_bound(
    http: HttpConfig,
    tls: TlsFiles | None,
    region: ResolvedRegion | None,
    max_connections: int | None = None,
    trusted_proxies: Iterable[str] = (),
) -> AddressBound:
    """Return how many connections an address may have at a front. Options override the configuration.

    There is no bound if unknown proxies stand before the front. Without TLS, clients come only through a proxy that
    speaks TLS. With several regions, the fronts of a drained region bring its clients.

    Raises:
        ConfigError: an option is not a network.
    """
    try:
        named = [str(ipaddress.ip_network(network, strict=False)) for network in trusted_proxies]
    except ValueError as error:
        raise ConfigError(f"--trusted-proxy: {error}. Write an address or a network, such as 10.0.0.0/24.") from None
    trusted = named or [str(network) for network in http.trusted_proxies]
    wanted = max_connections or http.max_connections_per_address
    knows_others = bool(trusted) or not (region and region.others)
    is_bounded = max_connections is not None or (tls is not None and knows_others)
    return AddressBound(wanted if is_bounded else None, (*AddressBound().trusted, *trusted))


class Front:
    """The front's supervisor as a child process of `manta serve`."""

    def __init__(self, settings: FrontSettings, environment: Mapping[str, str], log_path: Path) -> None:
        """Start the supervisor.

        Raises:
            OSError: its files cannot be written.
        """
        self._command = supervisor_command(settings.save())
        self._environment = environment
        self._log_path = log_path
        self._tree = self._start()

    def keep(self) -> None:
        """Restart the supervisor if it has ended; HAProxy and the agent keep running meanwhile."""
        if self._tree.exit_status is not None:
            self._tree = self._start()

    def close(self) -> None:
        """Take no more requests, and finish the running ones."""
        self._tree.send(signal.SIGTERM)

    def _start(self) -> ProcessTree:
        return ProcessTree(self._command, self._environment, self._log_path, is_log_kept=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
