"""`manta serve`: one command from a configuration to a running service, and back to a machine as it was before.

It starts `serve run` on a Ray cluster of its own, waits until every model answers, and says how to call it.
On a cluster that others run, deploy with `serve deploy` instead.
"""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
import yaml
from rich.console import Console

from deployments.config import ConfigError
from deployments.models.demo.sources import resolve_source
from deployments.state.config import ResolvedState, resolve_state
from deployments.state.database.connection import connect
from deployments.state.identity.key_store import KeyStore
from deployments.state.identity.keys import NewKey
from deployments.state.objects.marker import open_objects
from serve_app.cli.supervise.ports import describe_holder, haproxy_ports, is_free
from serve_app.cli.supervise.process_tree import ProcessTree, abandoned_processes, end_processes, serve_command
from serve_app.cli.supervise.readiness import Progress, ReadinessProbe
from serve_app.cli.supervise.welcome import render_welcome
from serve_app.config import ServiceConfig, check_file

_OFFLINE_SOURCES = ("demo:", "package:", "/", "./", "../")
_POLL_S = 0.5
_LOG_LINES = 40


@dataclass(frozen=True)
class ServePlan:
    """What one start needs to know of its configuration file."""

    path: Path
    host: str
    port: int
    config: ServiceConfig
    state: ResolvedState

    @property
    def log_path(self) -> Path:
        """Where the output of `serve run` goes."""
        return self.state.state_dir / "logs" / "serve.log"

    @property
    def url(self) -> str:
        """The address of the service, as a caller on this machine would write it."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host  # noqa: S104 - Compared, not bound.
        return f"http://{host}:{self.port}"


def serve(
    config: Annotated[Path, typer.Argument(help="The Serve configuration file.")] = Path("configs/local.yaml"),
    timeout_s: Annotated[float, typer.Option(help="How long the models may take to start, in seconds.")] = 3600.0,
) -> None:
    """Serve the models of a configuration on this machine until Ctrl-C."""
    console = Console(stderr=True, highlight=False)
    plan = load_plan(config, console)
    _clear_the_way(plan, console)
    with console.status("Preparing the models"):
        for model in plan.config.models:
            try:
                resolve_source(model.source)
            except (ValueError, OSError) as error:
                _fail(console, f"{model.id}: {error}")
    try:
        secret = asyncio.run(_open_state(plan.state))
    except ConfigError as error:
        _fail(console, str(error))
    environment = serving_environment(os.environ, plan)
    plan.log_path.parent.mkdir(parents=True, exist_ok=True)
    with _signals() as received:
        tree = ProcessTree(serve_command(plan.path), environment, plan.log_path)
        try:
            status = _run(tree, plan, secret, received, console, timeout_s)
        finally:
            tree.end()
    raise typer.Exit(status)


def load_plan(path: Path, console: Console) -> ServePlan:
    """Read a configuration file; says what is wrong with it and exits if it cannot be served."""
    if faults := check_file(path):
        _fail(console, *faults)
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    http = document.get("http_options") or {}
    config = ServiceConfig.model_validate(document["applications"][0].get("args") or {})
    try:
        state = resolve_state(config.state)
    except ConfigError as error:
        _fail(console, str(error))
    return ServePlan(path, str(http.get("host", "127.0.0.1")), int(http.get("port", 8000)), config, state)


def serving_environment(environ: Mapping[str, str], plan: ServePlan) -> dict[str, str]:
    """Return the environment of everything that is started: `environ`, and what it leaves open."""
    defaults = {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # Throughput's 1,000 hold back the last lines of each replica's log, and lose them when the replica ends. A line
        # costs as much one way as the other (17 µs); 1,000 at once stop a replica for 15 ms.
        "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",
        # How long an ingress replica goes on when it is to end. Serve's 30 s are for load balancers outside of the
        # cluster; its own HAProxy, which alone stands before them here, knows within one.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "3",
        # HAProxy is started anew whenever a replica comes or goes, and streams stay with the one they came through.
        # Serve would end it, and them, after 120 s: it stays for as long as a replica may drain.
        "RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S": "3600",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "MANTA_STATE_DIR": str(plan.state.state_dir),
        "PYTHONUNBUFFERED": "1",
    }
    if all(model.source.startswith(_OFFLINE_SOURCES) for model in plan.config.models):
        defaults["HF_HUB_OFFLINE"] = "1"
    if all(model.device == "cpu" for model in plan.config.models):
        defaults |= {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    haproxy = Path(sys.executable).with_name("manta-haproxy")
    if haproxy.exists():
        defaults["RAY_SERVE_HAPROXY_BINARY_PATH"] = str(haproxy)
    # Where other programs said which cluster to join, this one still starts its own.
    return {**defaults, **{name: value for name, value in environ.items() if name != "RAY_ADDRESS"}}


def _clear_the_way(plan: ServePlan, console: Console) -> None:
    if processes := abandoned_processes():
        console.print(f"Ending {len(processes)} processes that an earlier start has left behind.")
        end_processes(processes, patience_s=5.0)
    if not is_free(plan.port):
        _fail(
            console,
            f"Port {plan.port} is taken{describe_holder(plan.port)}. Stop what listens there, or set another "
            f"http_options.port in {plan.path}.",
        )
    for variable, port in haproxy_ports().items():
        if not is_free(port):
            _fail(
                console,
                f"Port {port}, which Ray Serve's HAProxy needs, is taken{describe_holder(port)}: most likely another "
                f"Ray cluster serves on this machine. Deploy to it with `serve deploy {plan.path}`, stop it with "
                f"`ray stop`, or choose another port in the environment variable {variable}.",
            )


async def _open_state(state: ResolvedState) -> str | None:
    """Look at the database and the object store; return the secret of a new key if there is no key yet, else None.

    Raises:
        ConfigError: they cannot be used, or do not belong together.
    """
    database = await connect(state.database_url)
    try:
        await open_objects(database, state.object_store)
        keys = KeyStore(database, state.pepper, state.config.tiers)
        if await keys.list_keys():
            return None
        _, secret = await keys.create(NewKey(name="first key", tier="standard"))
        return secret
    finally:
        await database.close()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect the signals that ask this process to stop, in place of their effect."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(
    tree: ProcessTree, plan: ServePlan, secret: str | None, received: list[int], console: Console, timeout_s: float
) -> int:
    """Follow the service from its start to its end; return the exit status."""
    progress = _wait_until_ready(tree, plan, received, console, timeout_s)
    if progress.phase == "ready":
        sys.stdout.write(render_welcome(plan.url, plan.config.models, secret, plan.log_path))
        sys.stdout.flush()
        while tree.exit_status is None and not received:
            time.sleep(_POLL_S)
    if received:
        _stop(tree, plan, received, console)
        return 0
    console.print(progress.problem or f"The service has ended. The last lines of {plan.log_path}:")
    if not progress.problem:
        with plan.log_path.open(encoding="utf-8", errors="replace") as log:
            sys.stderr.writelines(deque(log, maxlen=_LOG_LINES))
    return 1


def _wait_until_ready(
    tree: ProcessTree, plan: ServePlan, received: list[int], console: Console, timeout_s: float
) -> Progress:
    probe = ReadinessProbe(plan.url, tree.log_path)
    started = time.monotonic()
    shown = ""
    with console.status("Starting") as status:
        while tree.exit_status is None and not received:
            progress = probe.look()
            if progress.phase != "starting":
                return progress
            waited_s = time.monotonic() - started
            if waited_s > timeout_s:
                return Progress("failed", problem=f"Not ready after {timeout_s:.0f} seconds. Log: {plan.log_path}")
            text = f"Starting: {', '.join(progress.waiting_for)}"
            if text != shown and not console.is_terminal:
                console.print(text)
            status.update(f"{text} ({waited_s:.0f} s)")
            shown = text
            time.sleep(_POLL_S)
    return Progress("failed")


def _stop(tree: ProcessTree, plan: ServePlan, received: list[int], console: Console) -> None:
    """Let running requests finish, up to the longest time that the configuration gives them."""
    drain_s = max([plan.config.ingress.drain_s, *(model.drain_s for model in plan.config.models)])
    deadline = time.monotonic() + drain_s + 30.0
    asked = len(received)
    tree.interrupt()
    with console.status("Stopping: running requests may finish. Ctrl-C again stops at once."):
        while tree.exit_status is None and len(received) == asked and time.monotonic() < deadline:
            time.sleep(_POLL_S / 5)
        tree.end()
    console.print("Stopped.")


def _fail(console: Console, *lines: str) -> NoReturn:
    for line in lines:
        console.print(line, style="red", soft_wrap=True, markup=False)
    raise typer.Exit(1)
