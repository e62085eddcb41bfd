"""How many connections an address may have at a front, from a configuration and from the options of `manta front`."""

from collections.abc import Iterable
from ipaddress import ip_network

from deployments.config import ConfigError
from serve_app.config import HttpConfig
from serve_app.front.settings import AddressBound, RegionSettings, TlsFiles


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
        named = [str(ip_network(network, strict=False)) for network in trusted_proxies]
    except ValueError as error:
        raise ConfigError(f"--trusted-proxy: {error}. Write an address or a network, such as 10.0.0.0/24.") from None
    trusted = named or [str(network) for network in http.trusted_proxies]
    wanted = max_connections or http.max_connections_per_address
    knows_others = bool(trusted) or not (region and region.others)
    is_bounded = max_connections is not None or (tls is not None and knows_others)
    return AddressBound(wanted if is_bounded else None, (*AddressBound().trusted, *trusted))
