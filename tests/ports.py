"""Ports for servers under test."""

import random
import socket

# Below those that the kernel gives to connections, above those of Ray's workers, and not those of Serve's replicas: a
# port that was free stays so until whoever was told of it listens there.
_PORTS = range(20_000, 30_000)
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on, and that was not given to anybody before."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError("No port is free.")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True
