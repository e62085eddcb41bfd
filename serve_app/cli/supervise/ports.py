"""The ports that the service listens on, and who has them if it is somebody else."""

import errno
import os
import socket
from collections.abc import Mapping

import psutil

# The last is the proxy that HAProxy falls back on. Several may listen there, and the kernel would share the requests
# of one cluster out among all.
_HAPROXY_PORTS = {
    "RAY_SERVE_HAPROXY_METRICS_PORT": 9101,
    "RAY_SERVE_HAPROXY_STATS_PORT": 8404,
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": 8500,
}


def haproxy_ports(environ: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Return the ports that Ray Serve's HAProxy takes beside the HTTP port, by the variable that moves each."""
    return {variable: int(environ.get(variable, port)) for variable, port in _HAPROXY_PORTS.items()}


def is_free(port: int) -> bool:
    """Return whether this process could listen on a port, on every interface."""
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
    """Return who listens on a port, as " by NAME (process ID)"; empty where this user may not know."""
    try:
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass
    return ""
