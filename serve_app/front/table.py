"""Which ingress replicas a front knows. Lists only add to it; a server leaves when nothing speaks for it any more.

Pure but for loading and saving. Times are Unix seconds.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from serve_app.front.addresses import Address, parse_address
from serve_app.front.files import write_private


@dataclass(slots=True)
class Server:
    """An ingress replica that has proved to be one. `spoken_for_at` is when anything last spoke for it.

    That is its own proof, a health check of HAProxy, or a list that names it. `is_up` is what the checks say.
    """

    address: Address
    is_own: bool
    spoken_for_at: float
    is_up: bool = True


class Table:
    """The servers of one front."""

    def __init__(self, servers: Iterable[Server] = ()) -> None:
        self._servers = {server.address: server for server in servers}

    def servers(self) -> list[Server]:
        """Return the servers, those of this node first."""
        return sorted(self._servers.values(), key=lambda server: (not server.is_own, server.address))

    def addresses(self) -> set[Address]:
        """Return the addresses of the servers."""
        return {*self._servers}

    def add(self, address: Address, now: float, *, is_own: bool) -> bool:
        """Take in a replica that has just proved to be one; return whether it is new."""
        known = self._servers.get(address)
        self._servers[address] = Server(address, is_own, now, known is None or known.is_up)
        return known is None

    def speak_for(self, addresses: Iterable[Address], now: float) -> None:
        """Note that a health check or a list knows these; unknown ones stay unknown until they have proved it."""
        for address in addresses:
            if server := self._servers.get(address):
                server.spoken_for_at = now

    def note_checks(self, up: Collection[Address], down: Collection[Address], now: float) -> bool:
        """Note for which the health checks succeed, and for which they fail; return whether that is new."""
        self.speak_for(up, now)
        turned = [one for one in self._servers.values() if one.address in (down if one.is_up else up)]
        for server in turned:
            server.is_up = not server.is_up
        return bool(turned)

    def drop(self, address: Address) -> bool:
        """Take out what has turned out to be another program; return whether it was there."""
        return self._servers.pop(address, None) is not None

    def forget(self, now: float, forget_s: float) -> list[Address]:
        """Remove and return the servers that no source has listed for `forget_s` seconds."""
        gone = [address for address, server in self._servers.items() if now - server.spoken_for_at > forget_s]
        for address in gone:
            del self._servers[address]
        return gone


def save_table(path: Path, table: Table, now: float) -> None:
    """Write the table down in one step.

    Raises:
        OSError: the file cannot be written.
    """
    servers = [[str(one.address), one.is_own, one.spoken_for_at, one.is_up] for one in table.servers()]
    write_private(path, json.dumps({"saved_at": now, "servers": servers}))


def load_table(path: Path) -> tuple[Table, float]:
    """Return the table that was saved last, and when; an empty one of time zero where there is none to be read."""
    try:
        saved = json.loads(path.read_text())
        servers = [
            # The version before wrote down three things of each.
            Server(parse_address(text), bool(own), float(at), all(map(bool, is_up)))
            for text, own, at, *is_up in saved["servers"]
        ]
        return Table(servers), float(saved["saved_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return Table(), 0.0


def fresh_servers(path: Path, now: float, fresh_s: float) -> list[tuple[Address, bool]]:
    """Return the addresses of a table that was saved within `fresh_s` seconds, each with whether it is of this node.

    These are the replicas that are up; all, if none is. A process that has just begun takes each for one that is up.
    Of an older table it gets none: other programs may listen there by now.
    """
    table, saved_at = load_table(path)
    if not 0 <= now - saved_at <= fresh_s:
        return []
    servers = table.servers()
    return [(one.address, one.is_own) for one in [one for one in servers if one.is_up] or servers]
