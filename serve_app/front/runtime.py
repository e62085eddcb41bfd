"""One HAProxy process over its runtime socket: what its table is, and changes to it."""

import csv
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from serve_app.front.addresses import Address, parse_address
from serve_app.front.timings import USUAL

_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_AT_ONCE = 50
_NO_WAY = re.compile("No route to host|Network is unreachable|Host is down")
_OWN_SOCKET = "unix"
_COLUMNS = "svname", "addr", "status", "weight", "scur", "check_status", "last_chk", "lastchg"
"""HAProxy's names for the fields of a slot."""
_SERVERS = 4  # HAProxy's bit for servers, of all that it has statistics of.


class RuntimeFailed(Exception):
    """HAProxy did not answer on its runtime socket, or answered something else than was asked for."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One server of a backend, as HAProxy has it. `status`, `check` and `check_says` are HAProxy's words.

    `num_sessions` are open now, `since_s` is for how long the status has been the same.
    """

    name: str
    address: Address
    status: str
    weight: int
    num_sessions: int
    check: str
    check_says: str
    since_s: int

    @property
    def is_empty(self) -> bool:
        """Nothing is sent there."""
        return self.status.startswith("MAINT")

    @property
    def is_unreachable(self) -> bool:
        """Its node does not answer at all: not even to say that nothing listens there."""
        has_no_way = self.check == "L4CON" and _NO_WAY.search(self.check_says) is not None
        return self.is_down and (self.check == "L4TOUT" or has_no_way)

    @property
    def is_up(self) -> bool:
        """Its checks succeed."""
        return self.status.startswith("UP")

    @property
    def is_down(self) -> bool:
        """Its checks fail."""
        return self.status.startswith("DOWN")


class Runtime:
    """The runtime socket at a path. Every call opens a connection of its own and waits for so long at most."""

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
        raise RuntimeFailed("HAProxy does not say its process id.")

    def slots(self, backend: str) -> list[Slot]:
        """Return the servers of a backend, but for the process itself.

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
        """Have commands carried out that answer nothing of interest.

        Raises:
            RuntimeFailed: HAProxy does not answer, or refuses one.
        """
        for start in range(0, len(commands), _AT_ONCE):
            answer = self._ask("; ".join(commands[start : start + _AT_ONCE]))
            for line in filter(None, map(str.strip, answer.splitlines())):
                if not line.startswith(("no need to change", "IP changed", "port changed", "Health checks", "health")):
                    raise RuntimeFailed(f"HAProxy refuses a command: {line[:200]}")

    def replace_certificate(self, path: Path, pem: str) -> None:
        """Have new connections get another certificate; the name of the old one is the path it was read from.

        Raises:
            RuntimeFailed: HAProxy does not answer, or refuses it.
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
    name: str, address: str, status: str, weight: str, num_sessions: str, check: str, check_says: str, since_s: str
) -> Slot:
    return Slot(
        name,
        parse_address(address),
        status,
        int(weight or 0),
        int(num_sessions or 0),
        check.removeprefix("* "),
        check_says,
        int(since_s or 0),
    )
