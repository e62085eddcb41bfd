"""Runs the drills in a network, a process table and mounts of their own: nothing of the machine is touched.

`python -m tests.tools.drills` starts itself again in there. The network has no way out: only the bridge between
the nodes.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

BRIDGE = "drills"
OUTSIDE = "10.77.0.1"
"""The address of the clients, which are on no node."""
_HARDWARE_ADDRESS = "02:00:00:00:00:01"
"""A bridge without one of its own takes the lowest of its links', another one when a node comes, and what nodes send to
the one before is dropped: clients that only receive stood still for three seconds."""
_MARK = "MANTA_DRILLS_APART"


def is_apart() -> bool:
    """Return whether this process runs in namespaces of its own."""
    return _MARK in os.environ


def run_apart(arguments: list[str], module: str = "tests.tools.drills") -> int:
    """Run a program in namespaces of its own; return its exit status. All that it started ends with it."""
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [*unshare, sys.executable, "-m", "tests.tools.drills.first", sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, env={**os.environ, _MARK: "1"}, start_new_session=True)

    def end(number: int, frame: FrameType | None) -> None:
        process.kill()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    return abs(process.wait())


def build_bridge() -> None:
    """Make the bridge on which the nodes will be, and the place where their namespaces are named."""
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    for command in (
        "mount -t tmpfs tmpfs /run/netns",
        "ip link set lo up",
        f"ip link add {BRIDGE} address {_HARDWARE_ADDRESS} type bridge",
        f"ip address add {OUTSIDE}/24 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
    ):
        run(command)


def run(command: str) -> None:
    """Run a command of the system.

    Raises:
        RuntimeError: it failed; the message has what it printed.
    """
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
