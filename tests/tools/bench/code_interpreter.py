"""How soon code runs: a sandbox's start, a new container warm and cold, and a call in one that is there.

The replica's part is real: sandboxes, the pool, the channel over its Unix socket. Ray and HTTP are left out, and add
the few milliseconds that every request has.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from deployments.channel.server import Capacity, ChannelServer
from deployments.tools.code_interpreter.client import RemoteHosts
from deployments.tools.code_interpreter.containers import Containers
from deployments.tools.code_interpreter.messages import Place
from deployments.tools.code_interpreter.replica import ContainerRunner
from deployments.tools.config import CodeInterpreterConfig
from deployments.tools.sandbox.host import SandboxHost, WarmPool, prepare_host

COLUMNS = ("what", "p50 ms", "p95 ms", "most ms", "times")
NUMPY = "import numpy\nprint(numpy.arange(10).sum())"


def run(rounds: int) -> list[list[str]]:
    """Return a row for each figure."""
    return asyncio.run(_run(rounds))


async def _run(rounds: int) -> list[list[str]]:
    config = CodeInterpreterConfig()
    bare = await prepare_host(config.limits, config.packages)
    ready = await prepare_host(config.limits, config.packages, config.preload)
    rows = [
        _row("a sandbox starts, nothing imported", await _times(lambda: _start(bare), rounds)),
        _row("a sandbox starts, numpy, pandas and matplotlib imported", await _times(lambda: _start(ready), rounds)),
    ]
    for name, host, num_warm in (("warm pool", ready, 2), ("no pool, nothing imported", bare, 0)):
        rows += await _containers(name, host, num_warm, rounds)
    return rows


async def _start(host: SandboxHost) -> None:
    await (await host.start()).close()


async def _containers(name: str, host: SandboxHost, num_warm: int, rounds: int) -> list[list[str]]:
    pool = WarmPool(host.start, num_warm)
    holder = Containers(pool, 64)
    server = ChannelServer(ContainerRunner(holder), Capacity(64, 0))
    with tempfile.TemporaryDirectory() as folder:
        place: Place = await server.start("127.0.0.1", str(Path(folder, "replica.sock")))  # type: ignore[assignment]

        async def choose(excluded: frozenset[str]) -> tuple[str, Place]:
            return "replica", place

        hosts = RemoteHosts(choose)
        holder.open()
        number = iter(range(1_000_000))

        async def first(code: str) -> None:
            container = f"cntr_{next(number)}"
            made = await hosts.create(container, 60)
            assert (await hosts.run(made, container, code)).status == "ok"

        async def filled() -> None:
            while len(pool._ready) < num_warm:  # noqa: ASYNC110 - only a bench waits for it.
                await asyncio.sleep(0.01)

        created = await _times(lambda: first("print('first output')"), rounds, filled)
        with_numpy = await _times(lambda: first(NUMPY), rounds, filled)
        container = f"cntr_{next(number)}"
        made = await hosts.create(container, 60)
        await hosts.run(made, container, NUMPY)
        again = await _times(lambda: hosts.run(made, container, "print(1)"), 10 * rounds)
        hosts.close()
        await server.close()
        await holder.close()
    return [
        _row(f"a new container's first output, {name}", created),
        _row(f"a new container's first output with numpy, {name}", with_numpy),
        _row(f"another call in it, {name}", again),
    ]


async def _times(
    work: Callable[[], Awaitable[object]], rounds: int, before: Callable[[], Awaitable[None]] | None = None
) -> list[float]:
    """Return the milliseconds that each round took."""
    times = []
    for _ in range(rounds):
        if before is not None:
            await before()
        started = time.perf_counter()
        await work()
        times.append(1000 * (time.perf_counter() - started))
    return times


def _row(what: str, times: list[float]) -> list[str]:
    ordered = sorted(times)
    at = [ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 1.0)]
    return [what, *(f"{value:.1f}" for value in at), str(len(times))]
