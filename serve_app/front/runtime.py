"""One HAProxy process over its runtime socket: the servers that it has, and the commands that change them."""

import csv
import re
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from serve_app.front.addresses import Address, parse_address
from serve_app.front.rendering import LAST_RESORT, MAIN, OTHER_WEIGHT, OWN_WEIGHT
from serve_app.front.table import Server
from serve_app.front.timings import USUAL

OWN_IS_FULL = 64
"""Open requests on each replica of this node from which other nodes get an equal part."""
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_AT_ONCE = 50
_NO_WAY = re.compile("No route to host|Network is unreachable|Host is down")
_OWN_SOCKET = "unix"
_COLUMNS = "svname", "addr", "status", "weight", "scur", "check_status", "last_chk", "lastchg"
"""HAProxy's names for the fields of a slot."""
_SERVERS = 4  # HAProxy's bit for the statistics of servers.


class RuntimeFailed(Exception):
    """HAProxy did not answer on its runtime socket, or its answer cannot be used."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One server of a backend. `status`, `check` and `check_details` are HAProxy's words.

    `num_sessions` are open now. The status has been the same for `since_s` seconds.
    """

    name: str
    address: Address
    status: str
    weight: int
    num_sessions: int
    check: str
    check_details: str
    since_s: int

    @property
    def is_empty(self) -> bool:
        """Whether the slot gets no requests."""
        return self.status.startswith("MAINT")

    @property
    def is_unreachable(self) -> bool:
        """Whether its node does not answer at all, not even to refuse a connection."""
        has_no_way = self.check == "L4CON" and _NO_WAY.search(self.check_details) is not None
        return self.is_down and (self.check == "L4TOUT" or has_no_way)

    @property
    def is_up(self) -> bool:
        """Whether its checks succeed."""
        return self.status.startswith("UP")

    @property
    def is_down(self) -> bool:
        """Whether its checks fail."""
        return self.status.startswith("DOWN")


class Runtime:
    """The runtime socket at a path. Every call opens its own connection, and takes `timeout_s` at most."""

    def __init__(self, path: Path, timeout_s: float = USUAL.runtime_s) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def pid(self) -> int:
        """Return the id of the process that answers.

        Raises:
            RuntimeFailed: none does.
        """
        for line in self._ask("show info").splitlines():
            name, _, value = line.partition(": ")
            if name == "Pid" and value.isdigit():
                return int(value)
        raise RuntimeFailed("HAProxy does not answer with its process id.")

    def slots(self, backend: str) -> list[Slot]:
        """Return the servers of a backend, without the process itself.

        Raises:
            RuntimeFailed: HAProxy does not answer, or has no such backend.
        """
        answer = self._ask(f"show stat {backend} {_SERVERS} -1")
        try:
            names, *rows = csv.reader(answer.removeprefix("# ").strip().splitlines())
            read = itemgetter(*map(names.index, _COLUMNS))  # Of a hundred columns: a dictionary of each row is slow.
            slots = [_read_slot(name, addr, *rest) for name, addr, *rest in map(read, rows) if addr != _OWN_SOCKET]
        except (IndexError, ValueError, csv.Error):
            raise RuntimeFailed("HAProxy's statistics cannot be read.") from None
        if not slots:
            raise RuntimeFailed(f"HAProxy has no servers in {backend}.")
        return slots

    def send(self, commands: Sequence[str]) -> None:
        """Run commands whose answers do not matter.

        Raises:
            RuntimeFailed: HAProxy does not answer, or refuses a command.
        """
        for start in range(0, len(commands), _AT_ONCE):
            answer = self._ask("; ".join(commands[start : start + _AT_ONCE]))
            for line in filter(None, map(str.strip, answer.splitlines())):
                if not line.startswith(("no need to change", "IP changed", "port changed", "Health checks", "health")):
                    raise RuntimeFailed(f"HAProxy refuses a command: {line[:200]}")

    def replace_certificate(self, path: Path, pem: str) -> None:
        """Give new connections another certificate. HAProxy knows the old one by the path from which it was read.

        Raises:
            RuntimeFailed: HAProxy does not answer, or refuses the certificate.
        """
        for command in (f"set ssl cert {path} <<\n{pem}", f"commit ssl cert {path}"):
            answer = self._ask(command)
            if "Transaction" not in answer and "Success" not in answer:
                self._ask(f"abort ssl cert {path}")
                raise RuntimeFailed(f"HAProxy refuses the certificate: {answer.strip()[:200]}")

    def _ask(self, command: str) -> str:
        deadline = time.monotonic() + self._timeout_s
        answer = bytearray()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout_s)
                connection.connect(str(self._path))
                connection.sendall(command.encode() + b"\n")
                while piece := connection.recv(65_536):
                    answer += piece
                    if len(answer) > _MAX_ANSWER_BYTES or time.monotonic() > deadline:
                        raise RuntimeFailed("HAProxy's answer on its runtime socket has no end.")
        except OSError as error:
            raise RuntimeFailed(f"HAProxy does not answer on its runtime socket: {type(error).__name__}.") from None
        return answer.decode(errors="replace")


def _read_slot(
    name: str, address: str, status: str, weight: str, num_sessions: str, check: str, check_details: str, since_s: str
) -> Slot:
    return Slot(
        name,
        parse_address(address),
        status,
        int(weight or 0),
        int(num_sessions or 0),
        check.removeprefix("* "),
        check_details,
        int(since_s or 0),
    )


def weigh(servers: Sequence[Server], open_requests: Mapping[Address, int]) -> dict[Address, int]:
    """Return the weight of each server. Those of this node come first until they are busy."""
    own = [server for server in servers if server.is_own]
    is_full = not own or sum(open_requests.get(server.address, 0) for server in own) >= OWN_IS_FULL * len(own)
    return {server.address: OWN_WEIGHT if server.is_own or is_full else OTHER_WEIGHT for server in servers}


def plan(
    main: Sequence[Slot], last_resort: Sequence[Slot], weights: Mapping[Address, int], down: Collection[Address] = ()
) -> list[str]:
    """Return the commands that leave a process with exactly these servers.

    A server keeps its slot, because the slot has its health. A new server counts as living until its first check,
    unless it is known to be `down`. Servers for which no slot is free are left out.
    """
    twins = {slot.name: slot for slot in last_resort}
    commands: list[str] = []
    held: set[Address] = set()
    free: list[str] = []
    for slot in main:
        wanted = weights.get(slot.address)
        twin = twins.get(slot.name)
        if not slot.is_empty and wanted is not None and slot.address not in held and _agrees(twin, slot):
            held.add(slot.address)
            if slot.weight != wanted:
                commands.append(f"set server {MAIN}/{slot.name} weight {wanted}")
            continue
        free.append(slot.name)
        if not slot.is_empty or (twin is not None and not twin.is_empty):
            commands += [f"set server {backend}/{slot.name} state maint" for backend in (MAIN, LAST_RESORT)]
    missing = [address for address in weights if address not in held]
    for name, address in zip(free, missing, strict=False):
        commands += _fill(name, address, weights[address])
        if address in down:
            commands.append(f"set server {MAIN}/{name} health down")
    return commands


def silent(slots: Sequence[Slot], silent_s: float) -> list[Slot]:
    """Return the slots of replicas whose node has not answered at all for `silent_s` seconds, since two checks failed.

    A slow node still takes connections, and one whose replica has died refuses them.
    """
    return [slot for slot in slots if slot.is_unreachable and slot.since_s >= silent_s]


def end_streams(slots: Sequence[Slot]) -> list[str]:
    """Return the commands that end the open requests of these replicas."""
    return [f"shutdown sessions server {MAIN}/{slot.name}" for slot in slots if slot.num_sessions]


def without_returning(
    servers: Sequence[Server], silent_at: Mapping[Address, float], now: float, spare_s: float
) -> list[Server]:
    """Return the servers without those that were unreachable within the last `spare_s` seconds; all if none is left.

    `silent_at` is when each was last unreachable.
    """
    kept = [server for server in servers if now - silent_at.get(server.address, 0.0) >= spare_s]
    return kept or list(servers)


def plan_places(backend: str, slots: Sequence[Slot], wanted: Collection[Address]) -> list[str]:
    """Return the commands that leave the backend of another region with exactly these servers."""
    held = {slot.address for slot in slots if not slot.is_empty and slot.address in wanted}
    free = [slot for slot in slots if slot.is_empty or slot.address not in held]
    commands = [f"set server {backend}/{slot.name} state maint" for slot in free if not slot.is_empty]
    for slot, address in zip(free, sorted(set(wanted) - held), strict=False):
        commands += [
            f"set server {backend}/{slot.name} addr {address.host} port {address.port}",
            f"enable health {backend}/{slot.name}",
            f"set server {backend}/{slot.name} state ready",
            f"set server {backend}/{slot.name} health down",  # It would count as living until its first check.
        ]
    return commands


def _agrees(twin: Slot | None, slot: Slot) -> bool:
    return twin is not None and not twin.is_empty and twin.address == slot.address


def _fill(name: str, address: Address, weight: int) -> list[str]:
    """Return the commands that put a replica into an empty slot. Only the main backend has checks and weights."""
    place = f"addr {address.host} port {address.port}"
    return [
        f"set server {MAIN}/{name} {place}",
        f"set server {MAIN}/{name} weight {weight}",
        f"enable health {MAIN}/{name}",
        f"set server {MAIN}/{name} state ready",
        f"set server {LAST_RESORT}/{name} {place}",
        f"set server {LAST_RESORT}/{name} state ready",
    ]
