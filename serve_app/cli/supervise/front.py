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
    "{host} is an address that others reach, and without TLS they read keys and answers on the way. Give "
    "--tls-certificate and --tls-key, or say --plain-http where something before this front speaks TLS."
)


def choose_tls(certificate: Path | None, key: Path | None, redirect_port: int | None = None) -> TlsFiles | None:
    """Return the files of the certificate, None where there is none.

    Raises:
        ConfigError: only a part of what TLS needs is given.
    """
    if certificate is None and key is None:
        if redirect_port is not None:
            raise ConfigError("--redirect-port needs --tls-certificate and --tls-key.")
        return None
    if certificate is None or key is None:
        raise ConfigError("--tls-certificate and --tls-key go together.")
    return TlsFiles(str(certificate.absolute()), str(key.absolute()), redirect_port)


def check_encrypted(host: str, tls: TlsFiles | None, *, plain_http: bool) -> None:
    """Check that clients elsewhere reach a front over TLS only, unless it was said that they may do without.

    Raises:
        ConfigError: they would not.
    """
    if tls is None and not plain_http and not _is_loopback(host):
        raise ConfigError(_NOT_PLAIN.format(host=host))


def region_settings(state: ResolvedState) -> RegionSettings | None:
    """Return what a front has to know of its region, None where there is only one."""
    if state.region is None:
        return None
    return RegionSettings.of_region(state.region.name, state.region.others, state.region.certificate_authority)


def ingress_tls(config: ServiceConfig) -> IngressTls | None:
    """Return how ingress replicas speak TLS, None where they do not."""
    return None if config.tls is None else IngressTls(str(config.tls.authority.absolute()), config.tls.name)


def choose_bound(
    http: HttpConfig,
    tls: TlsFiles | None,
    region: RegionSettings | None,
    max_connections: int | None = None,
    trusted_proxies: Iterable[str] = (),
) -> AddressBound:
    """Return the bound of a front; the options, where they are given, have the last word.

    There is none where a front has others before it that it does not know: without TLS it is reached only through what
    speaks TLS, and another region's fronts bring that region's clients when it is left.

    Raises:
        ConfigError: an option names no network.
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
    """The front's supervisor as a child process, started anew when it ends."""

    def __init__(self, settings: FrontSettings, environment: Mapping[str, str], log_path: Path) -> None:
        """Start it.

        Raises:
            OSError: its files cannot be written.
        """
        self._command = supervisor_command(settings.save())
        self._environment = environment
        self._log_path = log_path
        self._tree = self._start()

    def keep(self) -> None:
        """Start the supervisor anew where it has ended; what it supervised goes on meanwhile."""
        if self._tree.exit_status is not None:
            self._tree = self._start()

    def close(self) -> None:
        """Take no more requests; those that run may end."""
        self._tree.send(signal.SIGTERM)

    def _start(self) -> ProcessTree:
        return ProcessTree(self._command, self._environment, self._log_path, is_log_kept=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
