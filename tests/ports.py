"""Ports for servers under test."""

import os
import random
import socket

# Below those that the kernel gives to connections, above those of Ray's workers, and not those of Serve's replicas: a
# port that was free stays so until the process that got it listens there. Processes of tests that run side by side have
# ports of their own.
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_NUM_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_PORTS = range(20_000 + _PROCESS, 30_000, _NUM_PROCESSES)
_ROWS = [range(start, start + 12) for start in range(17_000 + 12 * _PROCESS, 19_980, 12 * _NUM_PROCESSES)]
_given: set[int] = set()
_BLOCKS = [range(start, start + 100) for start in range(31_100, 32_700, 100)][_PROCESS::_NUM_PROCESSES]
"""For the replicas of one service, above Serve's own range and below those that the kernel gives to connections."""


def free_port() -> int:
    """Return a port that nobody listens on, and that was not given to anybody before."""
    for port in random.sample(_PORTS, len(_PORTS)):
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise RuntimeError("No port is free.")


def free_row() -> range:
    """Return a dozen ports that nobody listens on, for a front and the replicas before which it stands."""
    for row in random.sample(_ROWS, len(_ROWS)):
        if not _given & {*row} and all(map(_is_free, row)):
            _given.update(row)
            return row
    raise RuntimeError("No row of ports is free.")


def free_block() -> range:
    """Return a hundred ports that nobody listens on, for a service whose replicas are not to meet those of another."""
    for block in random.sample(_BLOCKS, len(_BLOCKS)):
        if not _given & {*block} and all(map(_is_free, block)):
            _given.update(block)
            return block
    raise RuntimeError("No block of ports is free.")


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            return False
    return True
