"""A service under test: started as an operator starts it, watched from outside, and stopped without a trace.

Nothing here joins the Ray cluster. What the tests know comes over HTTP, from the database and from the process table.
"""

import asyncio
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any, TypeVar

import httpx2
import psutil
import yaml

from deployments.state.config import StateConfig, resolve_state
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import ApiKey, NewKey
from deployments.state.usage.store import UsageStore
from serve_app.front.asking import read_ray_token
from tests.ports import free_block, free_port, free_row
from tests.starts import started
from tests.states import GONE, Deployments, States
from tests.waiting import MAX_PAUSE_S, pauses

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
COMMAND = [sys.executable, "-c", "from serve_app.cli import main; main()"]
CHAT, SMALL, LONG, EMBED = "manta/demo-chat", "manta/demo-small", "manta/demo-long", "all-minilm-l6-v2"
TRAINED = "manta/demo-trained"
"""The chat model of local.yaml, which makes sense; the others have random weights, and write until they must stop."""
ADAPTERS = ("one", "two")
"""Adapters of CHAT that everybody sees."""
CANARY = "Kanarienvogel-93f1"
"""Content that must be found nowhere: what requests say that are cut short, and that test_privacy looks for."""
COLOUR = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "is_large": {"type": "boolean"},
        "size": {"enum": [1, 2, 3]},
    },
    "required": ["colour", "is_large", "size"],
    "additionalProperties": False,
}
"""A schema that few answers keep."""
START_S, STOP_S = 600.0, 120.0
"""Three engines start in a minute on two fast cores, in several on slow ones beside other tests."""
_MARK = "MANTA_CLUSTER_TEST"
_DASHBOARD = re.compile(r"dashboard at.*?(https?://[\w.:-]+)")

T = TypeVar("T")


@dataclass(frozen=True)
class Replica:
    """One replica of a deployment, as Serve tells of it."""

    replica_id: str
    pid: int
    state: str


def eventually(look: Callable[[], T | None], timeout_s: float, what: str, max_pause_s: float = MAX_PAUSE_S) -> T:
    """Return the first thing that is true of what `look` returns; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    for pause_s in pauses():
        if found := look():
            return found
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(min(pause_s, max_pause_s))
    raise AssertionError


@contextmanager
def one_start_at_a_time() -> Iterator[None]:
    """Wait until no other start goes on on this machine: Ray gives its agents 15 s, which two at once may not keep."""
    with (Path(gettempdir()) / "manta-test-start.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Service:
    """`manta serve` on a configuration, in a folder of its own."""

    def __init__(self, config: dict[str, Any], environment: dict[str, str] | None = None) -> None:
        """Write the configuration down, on a port of its own; nothing runs before `start`."""
        self.folder = Path(mkdtemp(prefix="mt-", dir="/tmp"))  # Short: Ray makes Unix sockets far below it.
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.replica_ports = free_block()  # Two clusters would try the same ports.
        self.config_path = self.folder / "config.yaml"
        self.state_dir = self.folder / "state"
        self.ray_dir = self.state_dir / "ray" / "tmp"
        self.output_path = self.folder / "output.txt"
        self.config = config
        self.stop_signal = signal.SIGINT
        config["http_options"] = {"host": "127.0.0.1", "port": self.port}
        self.config_path.write_text(yaml.safe_dump(config, sort_keys=False))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            "MANTA_STATE_DIR": str(self.state_dir),
            "VLLM_RPC_BASE_PATH": str(self.folder),  # An engine that is killed leaves its socket.
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(self.replica_ports.start),
            "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(self.replica_ports.stop - 1),
            "AUTOSCALER_METRIC_PORT": str(free_port()),  # Ray lists this port and the next even where another
            "DASHBOARD_METRIC_PORT": str(free_port()),  # cluster has them: its metrics would be taken for ours.
            "MANTA_FRONT_STATS_PORT": str(free_row().start),
            "COLUMNS": "200",
            **(environment or {}),
        }
        self._mark = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_marked: dict[psutil.Process, bool] = {}
        self._dashboard: httpx2.Client | None = None
        self._states = States(self._look)

    def start(self) -> None:
        """Start the service and wait until it says that it is ready."""
        with one_start_at_a_time():
            self._start()
        self._dashboard = self._open_dashboard()
        self._states = States(self._look)
        self._states.start()

    def _start(self) -> None:
        self._is_marked = {}
        self._mark = f"{_MARK}={secrets.token_hex(8)}"
        started("services")
        started("engines", self._num_engines())
        name, _, value = self._mark.partition("=")
        with self.output_path.open("wb") as output:
            self._process = subprocess.Popen(
                [*COMMAND, "serve", str(self.config_path)],
                cwd=ROOT,
                env={**self._environment, name: value},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while "Ctrl-C stops it." not in self.output_path.read_text():
            assert self._process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(MAX_PAUSE_S)

    def stop(self) -> None:
        """Stop the service; asserts that it goes in peace and that none of its processes is left."""
        process = self._process
        assert process is not None
        self._look_no_more()
        before = self.processes()
        process.send_signal(self.stop_signal)
        try:
            status = process.wait(STOP_S)
            left = {one.pid: describe(one) for one in [*before, *self._marked()] if is_living(one)}
        finally:
            self.kill()
        assert status == 0, self.told()
        assert left == {}

    def failed_to_close(self) -> list[str]:
        """Return the logs of replicas that raised an error when they were stopped, since the last start."""
        logs = sorted((self.ray_dir / "session_latest").resolve().rglob("serve/replica_*.log"))
        assert logs
        return [path.name for path in logs if "Exception during graceful shutdown" in path.read_text()]

    @property
    def has_ended(self) -> bool:
        """Whether it was started and runs no more."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """End whatever is left, without ceremony."""
        self._look_no_more()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        while left := self._marked():  # One that is killed may have just started another.
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, 10)

    def _look_no_more(self) -> None:
        if self._dashboard is not None:
            self._states.stop()
            self._dashboard.close()
            self._dashboard = None

    def remove(self) -> None:
        """Remove the folder and all that the service wrote into it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def told(self) -> str:
        """Return the end of what Ray's raylet, its GCS and Serve wrote, and what the command printed."""
        logs = [path for name in ("raylet", "gcs_server") for path in sorted(self.ray_dir.rglob(f"{name}.out"))]
        logs.append(self.state_dir / "logs" / "serve.log")
        ends = [f"{path.name}:\n{_end_of(path)}" for path in logs if path.exists()]
        return "\n".join([*ends, self.output_path.read_text()])

    def run_command(self, *arguments: str) -> str:
        """Run another of the operator's commands on this service's state; return what it printed."""
        done = subprocess.run(
            [*COMMAND, *arguments], cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # Keys and records, from the database.

    async def issue(self, **fields: Any) -> tuple[ApiKey, str]:
        """Issue a key; return it and its secret."""
        issued: tuple[ApiKey, str] = await self.with_keys(lambda keys: keys.create(NewKey(**fields)))
        return issued

    async def with_keys(self, work: Callable[[KeyStore], Any]) -> Any:
        """Return what `work` returns on the service's keys."""
        state = self._state()
        return await self.with_database(lambda database: work(KeyStore(database, state.pepper, state.config.tiers)))

    async def with_usage(self, work: Callable[[UsageStore], Any]) -> Any:
        """Return what `work` returns on the service's request log and usage rows."""
        return await self.with_database(lambda database: work(UsageStore(database)))

    async def with_database(self, work: Callable[[Database], Any]) -> Any:
        """Return what `work` returns on the service's database."""
        database = await connect(self._state().database_url)
        try:
            return await work(database)
        finally:
            await database.close()

    def issue_unlimited(self, account: str = "unlimited") -> str:
        """Return the secret of a key that no limit of these tests reaches."""
        issued = self.issue(
            account=account, tier="enterprise", requests_per_minute=1_000_000, tokens_per_minute=1_000_000_000_000
        )
        return asyncio.run(issued)[1]

    def _num_engines(self) -> int:
        """Return how many vLLM engines the configuration starts with."""
        models = self.config["applications"][0]["args"]["models"]
        scaled = (model.get("autoscaling_config") or {} for model in models if "engine" not in model)
        return sum(scaling.get("min_replicas", 1) for scaling in scaled)

    def _state(self) -> Any:
        args = self.config["applications"][0]["args"]
        return resolve_state(StateConfig.model_validate(args.get("state") or {}), self._environment)

    # What runs, from Serve and from the process table.

    def deployments(self) -> Deployments:
        """Return Serve's word on every deployment."""
        return self._states.now()

    def deploy(self, config: dict[str, Any]) -> None:
        """Have Serve move to another configuration, as `serve deploy` does."""
        answer = self._ask("PUT", config)
        assert answer.status_code == 200, answer.text

    def _look(self) -> Deployments:
        found: Deployments = self._ask("GET").json()["applications"]["manta"]["deployments"]
        return found

    def _ask(self, method: str, body: Any = None) -> httpx2.Response:
        assert self._dashboard is not None
        return self._dashboard.request(method, "/api/serve/applications/", json=body)

    def _open_dashboard(self) -> httpx2.Client:
        found = _DASHBOARD.search((self.state_dir / "logs" / "serve.log").read_text(errors="replace"))
        assert found is not None
        headers = {"Authorization": f"Bearer {read_ray_token(self._environment)}"}
        return httpx2.Client(base_url=found[1], headers=headers, timeout=30)

    def replicas(self, name: str) -> list[Replica]:
        """Return the replicas of a model, of "batch:MODEL", a tool or the "ingress"; also those that come or go."""
        deployment = self.deployments().get(deployment_of(name)) or {}  # None while a configuration is built.
        told = deployment.get("replicas") or []
        return [Replica(one["replica_id"], one.get("pid") or 0, one["state"]) for one in told]

    def running(self, name: str) -> list[Replica]:
        """Return the replicas that serve."""
        return [replica for replica in self.replicas(name) if replica.state == "RUNNING"]

    def arrived(self, name: str) -> set[str]:
        """Return the ids of the replicas that have served since the service started, also of those that left."""
        return self._states.seen(deployment_of(name), "RUNNING")

    def leaving(self, name: str) -> set[str]:
        """Return the ids of the replicas that have begun to leave since the service started, also of those gone."""
        return self._states.seen(deployment_of(name), "STOPPING", GONE)

    def gone(self, name: str) -> set[str]:
        """Return the ids of the replicas that have left since the service started."""
        return self._states.seen(deployment_of(name), GONE)

    def engine_of(self, replica: Replica) -> psutil.Process:
        """Return the process in which a replica's engine generates."""
        children = psutil.Process(replica.pid).children(recursive=True)
        (engine,) = [child for child in children if "EngineCore" in describe(child)]
        return engine

    def process_named(self, title: str) -> psutil.Process | None:
        """Return the service's process whose title begins like that, None while there is none."""
        return next((one for one in self.processes() if is_living(one) and describe(one).startswith(title)), None)

    def processes(self) -> list[psutil.Process]:
        """Return every process of the service: its descendants, and whatever carries its mark."""
        assert self._process is not None
        found = {one.pid: one for one in [*self._marked(), *psutil.Process(self._process.pid).children(recursive=True)]}
        return list(found.values())

    def metrics_targets(self) -> list[str]:
        """Return where Ray's own agents show the cluster's metrics."""
        listing = next(self.ray_dir.rglob("prom_metrics_service_discovery.json"))
        return [target for group in json.loads(listing.read_text()) for target in group["targets"]]

    def ingress_urls(self) -> list[str]:
        """Return the address of each ingress replica, past the front."""
        urls = []
        for replica in self.running("ingress"):
            connections = psutil.Process(replica.pid).net_connections("tcp")
            ports = {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
            (port,) = ports & {*self.replica_ports}
            urls.append(f"http://127.0.0.1:{port}")
        return urls

    def open_to_others(self) -> dict[str, str]:
        """Return where the service's processes listen beyond loopback, each with what the process calls itself."""
        found = {}
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                for connection in process.net_connections("tcp"):
                    address = ip_address(connection.laddr.ip)
                    address = getattr(address, "ipv4_mapped", None) or address
                    if connection.status == psutil.CONN_LISTEN and not address.is_loopback:
                        found[f"{address}:{connection.laddr.port}"] = describe(process)
        return found

    def _marked(self) -> list[psutil.Process]:
        """Return the living processes that carry the mark; the environment of each process is read once."""
        name, _, value = self._mark.partition("=")
        found = []
        for process in psutil.process_iter():
            try:
                if process not in self._is_marked and (environment := process.environ()):
                    self._is_marked[process] = environment.get(name) == value
            except (psutil.Error, OSError):
                continue
            if self._is_marked.get(process) and is_living(process):
                found.append(process)
        return found


def _end_of(path: Path) -> str:
    """Return the last words of a log of Ray, without its statistics."""
    lines = path.read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if not line.startswith("[state-dump]"))[-6000:]


def is_living(process: psutil.Process) -> bool:
    """Return whether a process is there, and not just waiting to be forgotten."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def describe(process: psutil.Process) -> str:
    """Return what a process calls itself, nothing if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def deployment_of(name: str) -> str:
    """Return Serve's name for a model's deployment; those of other things are their own."""
    if name == "ingress" or name.startswith("tool:"):
        return name
    kind, _, model = name.rpartition(":")
    return f"{kind or 'model'}:{model.replace('/', '--')}"


def read_config(name: str) -> dict[str, Any]:
    """Return one of the shipped configurations."""
    document: dict[str, Any] = yaml.safe_load((CONFIGS / name).read_text())
    return document


@contextmanager
def running_service(config: dict[str, Any], environment: dict[str, str] | None = None) -> Iterator[Service]:
    """Run a service, and stop it at the end unless the test has; whatever happens, nothing of it is left."""
    service = Service(config, environment)
    try:
        service.start()
        yield service
        if not service.has_ended:
            service.stop()
    finally:
        service.kill()
        service.remove()
