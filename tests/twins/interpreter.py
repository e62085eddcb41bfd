"""The code interpreter without Ray: real sandboxes in this process, reached over a real channel."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from deployments.channel.server import Capacity, ChannelServer
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.containers import Containers
from deployments.tools.code_interpreter.messages import Place
from deployments.tools.code_interpreter.replica import ContainerRunner
from deployments.tools.sandbox.host import SandboxHost, WarmPool
from deployments.tools.sandbox.limits import MIB, Limits
from tests.needs import sandboxes

LIMITS = Limits(memory_bytes=512 * MIB, work_bytes=16 * MIB, file_bytes=8 * MIB, call_s=60.0)


def sandbox_host(*, has_shell: bool = False) -> SandboxHost:
    """Return what makes sandboxes here; where none can be built, the test that asks is skipped."""
    return sandboxes(LIMITS, has_shell=has_shell)


@dataclass
class Replica:
    """One replica: what it holds, how it listens, where."""

    containers: Containers
    server: ChannelServer
    place: Place


@dataclass
class Interpreter:
    """The replicas of a code interpreter, and the client that reaches them."""

    replicas: list[Replica]
    hosts: RemoteHosts


@asynccontextmanager
async def run_interpreter(
    folder: Path, num_replicas: int = 1, max_containers: int = 8, *, has_shell: bool = False
) -> AsyncIterator[Interpreter]:
    """Have replicas run that make sandboxes when they are asked for one."""
    host = sandbox_host(has_shell=has_shell)
    replicas = []
    for number in range(num_replicas):
        containers = Containers(WarmPool(host.start, 0), max_containers)
        server = ChannelServer(ContainerRunner(containers), Capacity(64, 0))
        place = await server.start("127.0.0.1", str(folder / f"replica{number}.sock"))
        containers.open()
        replicas.append(Replica(containers, server, place))  # type: ignore[arg-type]

    async def choose(excluded: frozenset[str]) -> tuple[str, Place]:
        names = [str(number) for number in range(num_replicas)]
        name = next((name for name in names if name not in excluded), names[0])
        return name, replicas[int(name)].place

    hosts = RemoteHosts(choose)
    try:
        yield Interpreter(replicas, hosts)
    finally:
        hosts.close()
        for replica in replicas:
            await replica.server.close()
            await replica.containers.close()
