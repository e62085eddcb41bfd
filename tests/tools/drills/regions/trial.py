"""Tries a link out: `python -m tests.tools.drills.regions.trial` prints as JSON what `measure` returns."""

import json
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from tests.tools.drills.apart import build_bridge, is_apart, run_apart
from tests.tools.drills.nodes import Node
from tests.tools.drills.regions.link import Link, inside

PORT = 7
ASKS = 20
PATIENCE_S = 2.0


def measure(folder: Path, loss: float) -> dict[str, float | int]:
    """Return round trips in seconds, and how many of `ASKS` were answered: on a link, cut, healed, and to a third."""
    us, asia, witness = (Node(name, 30 + n, folder / name) for n, name in enumerate(("us", "asia", "witness")))
    link = Link(us, asia, loss=loss)
    for node in (asia, witness):
        threading.Thread(target=_answer, args=(node,), daemon=True).start()
    time.sleep(0.3)
    over, lossy = _ask(us, asia)
    link.cut()
    _, cut = _ask(us, asia, asks=3)
    _, beside = _ask(us, witness)
    link.heal()
    _, healed = _ask(us, asia)
    near, _ = _ask(us, witness)
    link.remove()
    return {
        "over_s": over,
        "near_s": near,
        "answered": lossy,
        "answered_cut": cut,
        "answered_beside": beside,
        "answered_healed": healed,
    }


def _answer(node: Node) -> None:
    with inside(node.name):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((node.address, PORT))
    while True:
        said, address = server.recvfrom(100)
        server.sendto(said, address)


def _ask(here: Node, there: Node, asks: int = ASKS) -> tuple[float, int]:
    """Return the median round trip in seconds, and how many asks were answered."""
    with inside(here.name):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(PATIENCE_S / 4)
    trips = []
    for number in range(asks):
        began = time.monotonic()
        client.sendto(bytes([number]), (there.address, PORT))
        try:
            while client.recv(100) != bytes([number]):
                continue
        except TimeoutError:
            continue
        trips.append(time.monotonic() - began)
    client.close()
    return (median(trips) if trips else 0.0), len(trips)


def main() -> int:
    """Measure apart from the machine's own network; return the exit status."""
    if not is_apart():
        return run_apart(sys.argv[1:], "tests.tools.drills.regions.trial")
    build_bridge()
    with tempfile.TemporaryDirectory(prefix="drills-", dir="/tmp") as folder:
        print(json.dumps(measure(Path(folder), float(*sys.argv[1:] or "0"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
