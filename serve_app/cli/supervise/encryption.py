"""What a front encrypts, from a configuration and from the options of `manta front` and `manta serve`."""

import ipaddress
from pathlib import Path

from deployments.config import ConfigError
from deployments.state.config import ResolvedState
from serve_app.config import ServiceConfig
from serve_app.front.settings import IngressTls, RegionSettings, TlsFiles

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


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
