"""The ports that the service listens on, and the processes that already use them."""

import errno
import os
import socket
from collections.abc import Mapping

import psutil

from serve_app.front.settings import NUM_PROXIES

STATS_PORT_VARIABLE = "MANTA_FRONT_STATS_PORT"
STATS_HOST_VARIABLE = "MANTA_FRONT_STATS_HOST"
_STATS_PORT = 8404
_PROXY_PORTS = range(8500, 8600)


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


def describe_holder(port: int) -> str:
    """Return the process that listens on a port, as " by NAME (process ID)"; empty if this user may not see it."""
    try:
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass
    return ""
