"""Which addresses the service may send requests to for others: public ones, and those that the operator adds.

Checks addresses after resolving, so that no notation gets around it. Resolves nothing itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx2

from deployments.tools.outbound.errors import AddressRefused

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

NOT_PUBLIC = "The host is not on the public internet: its name is unknown, or leads to a private address."
_PORTS = frozenset({80, 443})
_FIRST_FREE_PORT = 1024
_LAST_PORT = 65535
_DEFAULT_PORTS = {"http": 80, "https": 443}

# IANA's registries of special-purpose addresses (iana-ipv4-special-registry, iana-ipv6-special-registry), written out,
# as Python's releases differ in which addresses `ipaddress` calls global.
_NOT_PUBLIC = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # This host.
        "10.0.0.0/8",  # Private.
        "100.64.0.0/10",  # Between carriers and their customers; clouds keep services there.
        "127.0.0.0/8",  # Loopback.
        "168.63.129.16/32",  # Azure's own service, which gives out secrets, at a public address.
        "169.254.0.0/16",  # Link-local, with the metadata services of clouds.
        "172.16.0.0/12",  # Private.
        "192.0.0.0/24",  # Protocol assignments.
        "192.0.2.0/24",  # Documentation.
        "192.88.99.0/24",  # 6to4 relays.
        "192.168.0.0/16",  # Private.
        "198.18.0.0/15",  # Benchmarks.
        "198.51.100.0/24",  # Documentation.
        "203.0.113.0/24",  # Documentation.
        "224.0.0.0/4",  # Multicast.
        "240.0.0.0/4",  # Reserved, and broadcast.
        "2001::/23",  # Protocol assignments, Teredo among them, which carries IPv4 addresses.
        "2001:db8::/32",  # Documentation.
        "2002::/16",  # 6to4, which carries IPv4 addresses.
        "3fff::/20",  # Documentation.
    )
)
# Everything else is loopback, mapped or translated IPv4 (::ffff:0:0/96, 64:ff9b::/96), unique local, link-local,
# multicast or not assigned.
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet."""
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _NOT_PUBLIC)


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Where requests may go: to public addresses, and to those that the operator has named.

    Args:
        allowed_networks: networks that may be reached though they are not public.
        allowed_hosts: host names, as in URLs, that may be reached at any address.
        traced_hosts: host names to which requests carry the current `traceparent`.
    """

    allowed_networks: tuple[Network, ...] = ()
    allowed_hosts: frozenset[str] = frozenset()
    traced_hosts: frozenset[str] = frozenset()

    def check_url(self, url: httpx2.URL) -> None:
        """Raise AddressRefused unless a URL has http or https, a host, no credentials, and a port of the web."""
        if url.scheme not in _DEFAULT_PORTS:
            raise AddressRefused("Only addresses that begin with http:// or https:// can be fetched.")
        if not url.host:
            raise AddressRefused("The address names no host.")
        if url.userinfo:
            raise AddressRefused("An address with a user or password in it is not fetched.")
        port = url.port or _DEFAULT_PORTS[url.scheme]
        if port > _LAST_PORT or (port < _FIRST_FREE_PORT and port not in _PORTS and not self.names(url.host)):
            raise AddressRefused(f"Port {port} is not one of the web.")

    def choose(self, host: str, addresses: Iterable[str]) -> list[str]:
        """Return a host's addresses that may be connected to, in order; raises AddressRefused if there are none."""
        checked = [address for address in addresses if self._is_allowed(host, address)]
        if not checked:
            raise AddressRefused(NOT_PUBLIC)
        return checked

    def names(self, host: str) -> bool:
        """Return whether the operator has named a host."""
        return host.rstrip(".").lower() in self.allowed_hosts

    def is_traced(self, host: str) -> bool:
        """Return whether requests to a host carry a `traceparent`."""
        return bool(self.traced_hosts) and host.rstrip(".").lower() in self.traced_hosts

    def _is_allowed(self, host: str, address: str) -> bool:
        parsed = ip_address(address)
        return self.names(host) or is_public(parsed) or any(parsed in network for network in self.allowed_networks)
