"""A front under test: the real supervisor, the real agent, and real HAProxy processes."""

import asyncio
import json
import os
import re
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import httpx2
import psutil

from serve_app.front.rendering import MAIN
from serve_app.front.runtime import Runtime, RuntimeFailed
from serve_app.front.settings import NUM_PROXIES, FrontSettings, supervisor_command
from serve_app.front.table import load_table
from serve_app.front.timings import FrontTimings
from tests.contract.front.replicas import TRUST
from tests.ports import free_port, free_row
from tests.service import describe
from tests.starts import started
from tests.waiting import eventually

QUICK = FrontTimings(
    watch_s=0.2, round_s=0.1, ask_s=0.2, ask_others_s=0.3, lists_s=0.2, check_s=0.2, check_region_s=0.5
)
"""A front that looks often, so that tests wait for little; it waits for answers as long as any."""


@dataclass
class RunningFront:
    """One front, and the ports on which it looks for replicas of its node."""

    settings: FrontSettings
    replica_ports: list[int]
    supervisor: asyncio.subprocess.Process | None = None
    context: ssl.SSLContext | None = None
    """What clients believe, where the front speaks TLS."""

    @property
    def url(self) -> str:
        """Where clients come."""
        return f"{'https' if self.settings.tls else 'http'}://127.0.0.1:{self.settings.port}"

    def client(self, **fields: Any) -> httpx2.AsyncClient:
        """Return a client of the front."""
        return httpx2.AsyncClient(base_url=self.url, timeout=30, verify=self.context or False, **fields)

    @cached_property
    def looks(self) -> httpx2.AsyncClient:
        """The client that looks at the front, each time over a new connection: none keeps a replaced process alive."""
        return self.client(headers={"connection": "close"})

    @property
    def log(self) -> str:
        """What the front's processes have said."""
        return (self.settings.run_dir / "log").read_text()

    async def start(self) -> None:
        """Start the supervisor, and wait until the port answers and the agent, which starts last, is there."""
        started("fronts")
        path = self.settings.save()
        with (self.settings.run_dir / "log").open("ab") as log:
            self.supervisor = await asyncio.create_subprocess_exec(
                *supervisor_command(path), stdout=log, stderr=log, start_new_session=True
            )
        await eventually(self.is_live)
        await eventually(lambda: all(self.answers(number) for number in range(NUM_PROXIES)))
        await eventually(lambda: bool(self._agents()))

    def answers(self, number: int) -> bool:
        """A HAProxy process takes commands."""
        with suppress(RuntimeFailed):
            return Runtime(self.settings.socket_path(number)).pid() == self.pid_of(number)
        return False

    async def is_live(self) -> bool:
        """The front answers."""
        with suppress(httpx2.TransportError):
            return (await self.looks.get("/livez")).status_code == 200
        return False

    async def knows(self, *ports: int) -> None:
        """Wait until every HAProxy process sends requests to exactly these ports."""

        def has_all() -> bool:
            with suppress(RuntimeFailed):
                slots = [Runtime(self.settings.socket_path(number)).slots(MAIN) for number in range(NUM_PROXIES)]
                return all({slot.address.port for slot in each if slot.is_up} == {*ports} for each in slots)
            return False

        await eventually(has_all)

    async def counted(self, series: str) -> int:
        """Return a metric, added up over the processes."""
        line = re.compile(rf"^{re.escape(series)} (\d+)$", re.MULTILINE)
        pages = [(await self.looks.get(self.statistics(number) + "/metrics")).text for number in range(NUM_PROXIES)]
        return sum(int(line.search(page)[1]) for page in pages)  # type: ignore[index]

    def statistics(self, number: int) -> str:
        """Return where a HAProxy process shows its statistics."""
        return f"http://127.0.0.1:{self.settings.stats_port + number}"

    @contextmanager
    def without_checks(self, port: int) -> Iterator[None]:
        """Let the processes not check a replica meanwhile."""

        def send(command: str) -> None:
            for number in range(NUM_PROXIES):
                runtime = Runtime(self.settings.socket_path(number))
                slots = [slot for slot in runtime.slots(MAIN) if slot.address.port == port]
                runtime.send([f"{command} health {MAIN}/{slot.name}" for slot in slots])

        send("disable")
        try:
            yield
        finally:
            send("enable")

    def checks(self, port: int, backend: str = MAIN) -> set[str]:
        """Return what the processes found when they last checked what listens on a port, in HAProxy's words."""
        processes = [Runtime(self.settings.socket_path(number)) for number in range(NUM_PROXIES)]
        return {slot.check for one in processes for slot in one.slots(backend) if slot.address.port == port}

    def saved(self) -> set[int]:
        """Return the ports in the table that was saved."""
        return {address.port for address in load_table(self.settings.table_path)[0].addresses()}

    def saved_as_up(self) -> set[int]:
        """Return the ports of those that are up by the table that was saved."""
        return {server.address.port for server in load_table(self.settings.table_path)[0].servers() if server.is_up}

    def pid_of(self, number: int) -> int:
        """Return the id of a HAProxy process that lives; 0 while there is none."""
        try:
            pid = int(json.loads((self.settings.run_dir / f"haproxy-{number}.json").read_text())["pid"])
        except (OSError, ValueError):
            return 0
        return pid if is_living(pid) else 0

    async def make_whole(self) -> None:
        """Start the supervisor again, if a test has left the front without one."""
        if self.supervisor is not None and self.supervisor.returncode is not None:
            await self.start()

    async def is_back(self, number: int, killed: int) -> None:
        """Wait until another HAProxy process is there in place of the one that was killed."""
        await eventually(lambda: self.pid_of(number) not in (0, killed) and self.answers(number))

    def agent(self) -> psutil.Process:
        """Return the agent's process."""
        (agent,) = self._agents()
        return agent

    def _agents(self) -> list[psutil.Process]:
        assert self.supervisor is not None
        children = psutil.Process(self.supervisor.pid).children()
        return [one for one in children if "serve_app.front.agent" in describe(one)]

    @contextmanager
    def without_agent(self) -> Iterator[None]:
        """Let the agent do nothing meanwhile."""
        agent = self.agent()
        agent.suspend()
        try:
            yield
        finally:
            agent.resume()

    async def kill_supervisor(self) -> None:
        """Kill the supervisor and wait until it is gone; its agent follows."""
        assert self.supervisor is not None
        agent = self.agent()
        self.supervisor.kill()
        await self.supervisor.wait()
        await eventually(lambda: not is_living(agent.pid))

    async def stop(self) -> None:
        """Stop the front, whatever is left of it."""
        if self.supervisor is not None and self.supervisor.returncode is None:
            self.supervisor.send_signal(signal.SIGINT)
            await asyncio.wait_for(self.supervisor.wait(), 30)
        for number in range(NUM_PROXIES):
            if pid := self.pid_of(number):
                os.kill(pid, signal.SIGKILL)
        await self.looks.aclose()


def is_living(pid: int) -> bool:
    """Return whether there is such a process, and not just its remains."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def prepared_front(**fields: object) -> AsyncIterator[RunningFront]:
    """Prepare a front without starting it; stop it in the end."""
    folder = Path(mkdtemp(prefix="mf-", dir="/tmp"))  # Short: its sockets lie there.
    row = free_row()
    settings = FrontSettings(
        run_dir=folder / "front",
        host="127.0.0.1",
        port=free_port(),
        trust=TRUST,
        stats_port=row[0],
        min_port=row[NUM_PROXIES],
        max_port=row[-1],
        timings=QUICK,
    )
    front = RunningFront(replace(settings, **fields), [*row[NUM_PROXIES:]])  # type: ignore[arg-type]
    try:
        yield front
    finally:
        await front.stop()
        if front.supervisor is not None:
            print(front.log)  # Shown where the test fails.
        rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def running_front(**fields: object) -> AsyncIterator[RunningFront]:
    """Run a front."""
    async with prepared_front(**fields) as front:
        await front.start()
        yield front
