"""The TCP connections of a process on any node, from /proc: psutil shows those of its own network alone."""

import os
from typing import NamedTuple

_ESTABLISHED, _LISTENING = "01", "0A"


class Connection(NamedTuple):
    """An established connection: the process's port, and that of the other end."""

    own_port: int
    other_port: int


def accepted_by(pid: int) -> list[Connection]:
    """Return the connections that came to ports on which the process listens; none where it has ended."""
    try:
        inodes = {target[8:-1] for target in _targets(pid) if target.startswith("socket:[")}
        rows = [row for table in ("tcp", "tcp6") for row in _read(f"/proc/{pid}/net/{table}")]
    except OSError:
        return []
    own = [(_port(row[1]), _port(row[2]), row[3]) for row in rows if row[9] in inodes]
    listening = {port for port, _, state in own if state == _LISTENING}
    return [Connection(port, other) for port, other, state in own if state == _ESTABLISHED and port in listening]


def _targets(pid: int) -> list[str]:
    targets = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            targets.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # It was closed meanwhile.
            continue
    return targets


def _read(path: str) -> list[list[str]]:
    with open(path) as table:
        return [line.split() for line in table.readlines()[1:]]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
