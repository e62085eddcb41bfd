"""Nodes: machines as network namespaces on one bridge. A node runs containers, can be cut off, and can be killed whole.

A container is a command in a process table of its own, with its own /mnt and /dev/shm: when its first process ends, all
of it ends, as in a pod. What ends by itself is started again, as Kubernetes or systemd would.
"""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.tools.drills.apart import BRIDGE, run

RESTART_AFTER_S = 1.0
UNHEALTHY_S = 10.0
"""A container that was healthy, and has not been for so long, is started again, as by Kubernetes' liveness probe."""
_CHECK_S = 2.0
_HOSTS = Path("/etc/hosts")


class Container:
    """A command in a process table of its own on a node."""

    def __init__(
        self,
        node: "Node",
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        is_healthy: Callable[[], bool],
    ) -> None:
        self.num_starts = 0
        self._is_healthy = is_healthy
        self._node = node
        self._command = command
        self._environment = dict(environment)
        self._output = node.folder / f"{name}.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_wanted = False
        self._keeper: threading.Thread | None = None

    def start(self) -> None:
        """Start the command, and again whenever it ends, until `kill`."""
        self._is_wanted = True
        self._spawn()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def kill(self) -> None:
        """End every process of the container at once, and start none again."""
        self._is_wanted = False
        self._end()
        if self._keeper is not None:
            self._keeper.join(timeout=30)

    def stop(self, patience_s: float = 150.0) -> None:
        """Have the container end as a pod does: its first process gets SIGTERM, and what is left is ended later."""
        self._is_wanted = False
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            for first in psutil.Process(self._process.pid).children():
                first.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """What the command has printed so far."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def _spawn(self) -> None:
        mounts = f"mount --bind {self._node.folder} /mnt && mount -t tmpfs tmpfs /dev/shm && cd /mnt"
        mounts += ' && renice -n 0 -p $$ > /dev/null && exec "$@"'  # Not with the priority of the clients.
        unshare = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"]
        command = ["ip", "netns", "exec", self._node.name, *unshare, "sh", "-c", mounts, "sh", *self._command]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self.num_starts += 1

    def _end(self) -> None:
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                for first in psutil.Process(self._process.pid).children():
                    first.kill()
            self._process.wait(timeout=30)

    def _keep(self) -> None:
        while self._is_wanted:
            self._until_ended()
            if self._is_wanted:
                time.sleep(RESTART_AFTER_S)
            if self._is_wanted:
                self._spawn()

    def _until_ended(self) -> None:
        """Return when the container has ended, by itself or because it was no longer healthy."""
        healthy_at = None
        while self.is_running:
            if self._is_healthy():
                healthy_at = time.monotonic()
            elif healthy_at is not None and time.monotonic() - healthy_at > UNHEALTHY_S:
                self._end()
            assert self._process is not None
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_CHECK_S)


class Node:
    """A machine of its own on the bridge."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        """Make the node with the address 10.77.0.NUMBER; `folder` is the /mnt of its containers."""
        self.name = name
        self.address = f"10.77.0.{number}"
        self.folder = folder
        self.containers: dict[str, Container] = {}
        folder.mkdir(parents=True)
        for command in (
            f"ip netns add {name}",
            f"ip link add to-{name} type veth peer name eth0 netns {name}",
            f"ip link set to-{name} master {BRIDGE} up",
            f"ip -n {name} address add {self.address}/24 dev eth0",
            f"ip -n {name} link set lo up",
            f"ip -n {name} link set eth0 up",
        ):
            run(command)
        self._network = os.stat(f"/run/netns/{name}").st_ino

    def start(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        is_healthy: Callable[[], bool] = lambda: True,
    ) -> Container:
        """Start a container; it is started again when it ends by itself, or is no longer healthy."""
        container = self.containers[name] = Container(self, name, command, environment, is_healthy)
        container.start()
        return container

    def run(self, command: list[str], environment: Mapping[str, str]) -> str:
        """Run a command on the node to its end; return what it printed.

        Raises:
            RuntimeError: it failed; the message has the end of what it printed.
        """
        here = ["ip", "netns", "exec", self.name, *command]
        done = subprocess.run(here, env=dict(environment), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-500:]}")
        return done.stdout

    def cut(self) -> None:
        """Take the node off the network: nothing comes through in either direction, and nobody is notified."""
        run(f"ip link set to-{self.name} down")

    def heal(self) -> None:
        """Put the node back on the network."""
        run(f"ip link set to-{self.name} up")

    def kill(self) -> None:
        """End the node as a machine that loses its power: it is off the network before its processes end."""
        self.cut()
        for container in self.containers.values():
            container.kill()

    def restart(self) -> None:
        """Start the node again, with what it ran before."""
        self.heal()
        for container in self.containers.values():
            container.start()

    def remove(self) -> None:
        """End what runs on the node, and the node."""
        for container in self.containers.values():
            container.kill()
        run(f"ip link delete to-{self.name}")
        run(f"ip netns delete {self.name}")

    def processes(self, matches: Callable[[str], bool] = lambda title: True) -> list[psutil.Process]:
        """Return the node's living processes whose command line matches."""
        return [one for one in _living() if self._owns(one) and matches(title_of(one))]

    def has_process(self, matches: Callable[[str], bool]) -> bool:
        """Return whether a living process of the node matches."""
        return any(matches(title_of(one)) and self._owns(one) for one in _living())

    def _owns(self, process: psutil.Process) -> bool:
        try:
            is_here = os.stat(f"/proc/{process.pid}/ns/net").st_ino == self._network
            return is_here and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, psutil.Error):
            return False


def _living() -> Iterator[psutil.Process]:
    """Yield all processes. `psutil.process_iter` is for one thread at a time; the keepers of containers look too."""
    for pid in psutil.pids():
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def title_of(process: psutil.Process) -> str:
    """Return the command line of a process; "" where it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def end(processes: list[psutil.Process]) -> None:
    """Kill processes at once."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def name_hosts(folder: Path, addresses: Mapping[str, str]) -> None:
    """Have every container find these names; those that run see a change, too."""
    file = folder / "hosts"
    lines = [
        f"127.0.0.1 localhost {socket.gethostname()}",
        *(f"{address} {name}" for name, address in addresses.items()),
    ]
    is_new = not file.exists()
    file.write_text("\n".join(lines) + "\n")
    if is_new:
        run(f"mount --bind {file} {_HOSTS}")


def until(condition: Callable[[], bool], timeout_s: float, what: str, explain: Callable[[], str] = lambda: "") -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it did not in time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s; {explain()}")
        time.sleep(0.5)
