"""A link between two nodes over a long way: a program carries each packet from one to the other, and takes its time.

    python -m tests.tools.drills.regions.link NODE NODE --delay-s 0.075 [--loss 0.01] [--bytes-per-s 12500000]

Each node gets a TUN device; the program reads packets from one and writes them to the other. On its standard input it
takes `cut` and `heal`: a cut link loses all that is under way, and carries nothing, without notifying anybody.
"""

import argparse
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.tools.drills.apart import run
from tests.tools.drills.nodes import Node

DEVICE = "ocean"
MTU = 1500
DELAY_S = 0.075
"""One way: 150 ms there and back, as between the coasts of the Pacific."""
BYTES_PER_S = 12_500_000
QUEUE_S = 0.5
"""A packet that would wait longer than this for the ones before it is dropped."""
_TUN_SET_INTERFACE, _IS_TUN, _HAS_NO_HEADER = 0x400454CA, 0x0001, 0x1000
_NEW_NETWORK = 0x40000000
_MOST_AT_ONCE = 256


@dataclass
class Lane:
    """One direction of a link. Times are seconds of `clock`; what is under way is kept by when it arrives."""

    delay_s: float
    loss: float = 0.0
    bytes_per_s: float = BYTES_PER_S
    clock: Callable[[], float] = time.monotonic
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    is_cut: bool = False
    _free_at: float = 0.0
    _number: int = 0
    _under_way: list[tuple[float, int, bytes]] = field(default_factory=list)

    def take(self, packet: bytes) -> None:
        """Begin to carry a packet, or lose it."""
        now = self.clock()
        begins = max(now, self._free_at)
        if self.is_cut or begins - now > QUEUE_S or self.chance.random() < self.loss:
            return
        self._free_at = begins + len(packet) / self.bytes_per_s
        self._number += 1
        heapq.heappush(self._under_way, (self._free_at + self.delay_s, self._number, packet))

    def arrived(self) -> Iterator[bytes]:
        """Yield the packets that have arrived by now, in the order of their arrival."""
        while self._under_way and self._under_way[0][0] <= self.clock():
            yield heapq.heappop(self._under_way)[2]

    @property
    def next_at(self) -> float | None:
        """When the next packet arrives, None where none is under way."""
        return self._under_way[0][0] if self._under_way else None

    def cut(self) -> None:
        """Lose what is under way, and all that comes until `heal`."""
        self.is_cut = True
        self._under_way.clear()

    def heal(self) -> None:
        """Carry again."""
        self.is_cut = False


class Link:
    """A running link between two nodes; each reaches the other's address over it alone."""

    def __init__(self, one: Node, other: Node, delay_s: float = DELAY_S, loss: float = 0.0) -> None:
        """Start to carry; returns when both nodes have their route."""
        options = ["--delay-s", str(delay_s), "--loss", str(loss)]
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.tools.drills.regions.link", one.name, other.name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._ask("")
        for here, there in ((one, other), (other, one)):
            run(f"ip -n {here.name} link set {DEVICE} mtu {MTU} up")
            run(f"ip -n {here.name} route add {there.address}/32 dev {DEVICE} src {here.address}")

    def cut(self) -> None:
        """Carry nothing more in either direction, without a word to anybody."""
        self._ask("cut")

    def heal(self) -> None:
        """Carry again."""
        self._ask("heal")

    def remove(self) -> None:
        """End the program, and with it both devices and routes."""
        self._program.kill()
        self._program.wait(timeout=10)

    def _ask(self, word: str) -> None:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        if word:
            self._program.stdin.write(f"{word}\n")
            self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer == "done\n", answer


@contextmanager
def inside(name: str) -> Iterator[None]:
    """Let this thread be in the network of a node: a socket or device that is made meanwhile belongs there.

    Raises:
        OSError: the network cannot be entered.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(number: int) -> None:
        if libc.setns(number, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"the network {name} cannot be entered")

    with open("/proc/thread-self/ns/net") as own, open(f"/run/netns/{name}") as other:
        enter(other.fileno())
        try:
            yield
        finally:
            enter(own.fileno())


def open_device(node: str) -> int:
    """Return the file of a new TUN device on a node, which does not block."""
    with inside(node):
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(file, _TUN_SET_INTERFACE, struct.pack("16sH22x", DEVICE.encode(), _IS_TUN | _HAS_NO_HEADER))
    return file


def carry(files: tuple[int, int], lanes: tuple[Lane, Lane], commands: int) -> None:
    """Carry packets between two devices until the commands end; `lanes[0]` leads from the first to the second."""
    ways = ((files[0], files[1], lanes[0]), (files[1], files[0], lanes[1]))
    while True:
        arrivals = [lane.next_at for lane in lanes if lane.next_at is not None]
        wait_s = max(0.0, min(arrivals) - time.monotonic()) if arrivals else None
        readable, _, _ = select.select([*files, commands], [], [], wait_s)
        if commands in readable and not _obey(commands, lanes):
            return
        for source, target, lane in ways:
            for packet in _read(source) if source in readable else ():
                lane.take(packet)
            for packet in lane.arrived():
                _write(target, packet)


def _obey(commands: int, lanes: tuple[Lane, Lane]) -> bool:
    """Do what the commands say; return whether there may be more."""
    words = os.read(commands, 1000).decode().split()
    for word in words:
        for lane in lanes:
            lane.cut() if word == "cut" else lane.heal()
        print("done", flush=True)
    return bool(words)


def _read(file: int) -> Iterator[bytes]:
    for _ in range(_MOST_AT_ONCE):
        try:
            yield os.read(file, 65536)
        except OSError:  # Nothing more is there, or the device is down.
            return


def _write(file: int, packet: bytes) -> None:
    try:
        os.write(file, packet)
    except OSError:  # The device is down: the packet is lost, as on any link.
        return


def main(arguments: Sequence[str]) -> None:
    """Carry until the standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.drills.regions.link", description=__doc__)
    parser.add_argument("nodes", nargs=2, metavar="NODE")
    parser.add_argument("--delay-s", type=float, default=DELAY_S, help="how long each way takes")
    parser.add_argument("--loss", type=float, default=0.0, help="the share of packets that are lost")
    parser.add_argument("--bytes-per-s", type=float, default=BYTES_PER_S, help="what each way carries")
    options = parser.parse_args(arguments)
    files = open_device(options.nodes[0]), open_device(options.nodes[1])
    first, second = (Lane(options.delay_s, options.loss, options.bytes_per_s) for _ in range(2))
    print("done", flush=True)
    carry(files, (first, second), sys.stdin.fileno())


if __name__ == "__main__":
    main(sys.argv[1:])
