"""Addresses of ingress replicas: those on this node, and whether an address is one of this node's."""

import ipaddress
import socket
from pathlib import Path
from typing import NamedTuple

_LISTENING = " 0A "
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


class Address(NamedTuple):
    """Where an ingress replica listens; `host` is an IP address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address in a text of the form HOST:PORT.

    Raises:
        ValueError: it has another form.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return Address(str(ipaddress.ip_address(host)), int(port))


def listening_on(first_port: int, last_port: int, tables: tuple[Path, ...] = _TABLES) -> set[Address]:
    """Return the addresses on this node with a listening port from `first_port` to `last_port`.

    A process that listens on every interface is returned with its loopback address. Processes in other network
    namespaces are not found.
    """
    found = set()
    for table in tables:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            if _LISTENING not in line:  # Nearly all are connections, and there may be tens of thousands.
                continue
            host, _, port = line.split()[1].partition(":")
            if first_port <= int(port, 16) <= last_port:
                found.add(Address(_reachable(host), int(port, 16)))
    return found


def is_own(host: str) -> bool:
    """Return whether an IP address is one of this node's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def _reachable(kernel_host: str) -> str:
    """Return the IP address from the kernel's form, hexadecimal words in its own byte order."""
    words = [kernel_host[start : start + 8] for start in range(0, len(kernel_host), 8)]
    packed = b"".join(bytes.fromhex(word)[::-1] for word in words)
    address = ipaddress.ip_address(packed)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified:
        return "127.0.0.1"  # A socket on :: takes IPv4 too, by default.
    return str(address)
