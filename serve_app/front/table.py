"""What a front knows, saved over restarts: the table of ingress replicas, and the state of its region.

Lists only add to the table; a server leaves it when no source lists it any more. Times are Unix seconds.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from deployments.files import write_private
from serve_app.front.addresses import Address, parse_address


@dataclass(slots=True)
class Server:
    """An ingress replica that has proved to be one.

    `seen_at` is when it last proved itself, passed a health check of HAProxy, or was on a list. `is_up` is the result
    of the last checks.
    """

    address: Address
    is_own: bool
    seen_at: float
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
        """Add a replica that has just proved itself; return whether it is new."""
        known = self._servers.get(address)
        self._servers[address] = Server(address, is_own, now, known is None or known.is_up)
        return known is None

    def note_seen(self, addresses: Iterable[Address], now: float) -> None:
        """Note that these were seen. An unknown one stays unknown until it has proved itself."""
        for address in addresses:
            if server := self._servers.get(address):
                server.seen_at = now

    def note_checks(self, up: Collection[Address], down: Collection[Address], now: float) -> bool:
        """Note which servers pass their health checks; return whether that has changed for any."""
        self.note_seen(up, now)
        turned = [one for one in self._servers.values() if one.address in (down if one.is_up else up)]
        for server in turned:
            server.is_up = not server.is_up
        return bool(turned)

    def drop(self, address: Address) -> bool:
        """Remove an address where another program answers; return whether it was in the table."""
        return self._servers.pop(address, None) is not None

    def forget(self, now: float, forget_s: float) -> list[Address]:
        """Remove and return the servers that were not seen for `forget_s` seconds."""
        gone = [address for address, server in self._servers.items() if now - server.seen_at > forget_s]
        for address in gone:
            del self._servers[address]
        return gone


@dataclass(frozen=True, slots=True)
class RegionState:
    """Whether a region takes no requests, and the addresses of the fronts of each other region."""

    is_drained: bool = True
    addresses: Mapping[str, tuple[Address, ...]] = field(default_factory=dict)


class _Row(NamedTuple):
    address: str
    is_own: bool
    seen_at: float
    is_up: bool = True


class _SavedTable(msgspec.Struct):
    saved_at: float
    servers: list[_Row]


class _SavedRegion(msgspec.Struct):
    saved_at: float
    addresses: dict[str, list[str]]
    is_drained: bool = msgspec.field(name="is_left")  # The versions before wrote this name.


def save_table(path: Path, table: Table, now: float) -> None:
    """Save the table in one step.

    Raises:
        OSError: the file cannot be written.
    """
    rows = [_Row(str(one.address), one.is_own, one.seen_at, one.is_up) for one in table.servers()]
    write_private(path, msgspec.json.encode(_SavedTable(now, rows)))


def load_table(path: Path) -> tuple[Table, float]:
    """Return the saved table, and when it was saved; an empty one of time zero if there is none."""
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_SavedTable)
        return Table(Server(parse_address(row.address), *row[1:]) for row in saved.servers), saved.saved_at
    except (OSError, ValueError):
        return Table(), 0.0


def fresh_servers(path: Path, now: float, fresh_s: float) -> list[tuple[Address, bool]]:
    """Return the addresses in a table saved within `fresh_s` seconds, each with whether it is on this node.

    Only replicas that are up are returned, or all if none is: a new HAProxy process takes each for up. An older table
    gives none, because other programs may listen on those ports by now.
    """
    table, saved_at = load_table(path)
    if not 0 <= now - saved_at <= fresh_s:
        return []
    servers = table.servers()
    return [(one.address, one.is_own) for one in [one for one in servers if one.is_up] or servers]


def save_region(path: Path, state: RegionState, now: float) -> None:
    """Save the state of the region.

    Raises:
        OSError: the file cannot be written.
    """
    addresses = {name: [str(one) for one in known] for name, known in state.addresses.items()}
    write_private(path, msgspec.json.encode(_SavedRegion(now, addresses, state.is_drained)))


def load_region(path: Path, now: float, fresh_s: float) -> RegionState:
    """Return the state saved within `fresh_s` seconds; a drained region without known addresses if there is none."""
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=_SavedRegion)
        addresses = {name: tuple(map(parse_address, known)) for name, known in saved.addresses.items()}
    except (OSError, ValueError):
        return RegionState()
    return RegionState(saved.is_drained, addresses) if 0 <= now - saved.saved_at <= fresh_s else RegionState()
