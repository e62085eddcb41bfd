"""The front of `manta serve` and `manta front`: its TLS, its bounds, and its supervisor as a child of `manta serve`."""

import ipaddress
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from deployments.config import ConfigError
from deployments.state.config import ResolvedState
from serve_app.cli.supervise.process_tree import ProcessTree
from serve_app.config import HttpConfig, ServiceConfig
from serve_app.front.settings import (
    AddressBound,
    FrontSettings,
    IngressTls,
    RegionSettings,
    TlsFiles,
    supervisor_command,
)

_NOT_PLAIN = (
    "Others can reach {host}, and without TLS they can read keys and answers on the way. Give --tls-certificate and "
    "--tls-key, or --plain-http if something before this front speaks TLS."
)


def choose_tls(certificate: Path | None, key: Path | None, redirect_port: int | None = None) -> TlsFiles | None:
    """Return the files of the front's certificate, None without one.

    Raises:
        ConfigError: an option is missing.
    """
    if certificate is None and key is None:
        if redirect_port is not None:
            raise ConfigError("--redirect-port needs --tls-certificate and --tls-key.")
        return None
    if certificate is None or key is None:
        raise ConfigError("--tls-certificate and --tls-key go together.")
    return TlsFiles(str(certificate.absolute()), str(key.absolute()), redirect_port)


def check_encrypted(host: str, tls: TlsFiles | None, *, plain_http: bool) -> None:
    """Check that other machines reach the front over TLS only, unless --plain-http allows otherwise.

    Raises:
        ConfigError: they would reach it over plain HTTP.
    """
    if tls is None and not plain_http and not _is_loopback(host):
        raise ConfigError(_NOT_PLAIN.format(host=host))


def region_settings(state: ResolvedState) -> RegionSettings | None:
    """Return what a front needs to know about its region, None if there is only one."""
    if state.region is None:
        return None
    return RegionSettings.of_region(state.region.name, state.region.others, state.region.certificate_authority)


def ingress_tls(config: ServiceConfig) -> IngressTls | None:
    """Return the TLS settings of ingress replicas, None if they use plain HTTP."""
    return None if config.tls is None else IngressTls(str(config.tls.authority.absolute()), config.tls.name)


def choose_bound(
    http: HttpConfig,
    tls: TlsFiles | None,
    region: RegionSettings | None,
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
