"""`manta serve`: starts a service from a configuration, and leaves the machine as it was before.

It starts the front, and `serve run` on its own Ray cluster, waits until every model answers, and prints how to call it.
On an existing cluster, use `serve deploy` instead.
"""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
import yaml
from rich.console import Console

from deployments.config import ConfigError
from deployments.local_ray import choose_folder
from deployments.models.demo.sources import resolve_source
from deployments.proof import FrontTrust
from deployments.state.config import ResolvedState, resolve_state
from serve_app.checks.check import read_file
from serve_app.cli.supervise.front import (
    Front,
    check_encrypted,
    choose_bound,
    choose_proxy_port,
    choose_tls,
    describe_taken,
    front_stats_host,
    front_stats_port,
    front_stats_ports,
    ingress_tls,
    is_free,
)
from serve_app.cli.supervise.machine import check_room, code_interpreter_problem
from serve_app.cli.supervise.process_tree import (
    ProcessTree,
    abandoned_processes,
    end_processes,
    serve_command,
    serving_environment,
)
from serve_app.cli.supervise.readiness import Progress, ReadinessProbe
from serve_app.cli.supervise.welcome import create_link, open_state, render_welcome
from serve_app.config import ServiceConfig
from serve_app.front.certificate import CertificateFailed, write_copies
from serve_app.front.settings import FrontSettings, TlsFiles, choose_run_dir

_POLL_S = 0.5
_LOG_LINES = 40


@dataclass(frozen=True)
class ServePlan:
    """What a start needs from its configuration file.

    Clients come to the front, at `host` and `port`. Serve's own proxy gets `proxy_port`, which is not used.
    """

    path: Path
    host: str
    port: int
    proxy_port: int
    config: ServiceConfig
    state: ResolvedState
    tls: TlsFiles | None = None

    @property
    def log_path(self) -> Path:
        """The log file of `serve run`."""
        return self.state.state_dir / "logs" / "serve.log"

    @property
    def serve_path(self) -> Path:
        """The configuration for Serve: a copy with the proxy's port."""
        return self.state.state_dir / "serve.yaml"

    @property
    def drain_s(self) -> float:
        """How long running requests may take to finish."""
        return max([self.config.ingress.drain_s, *(model.drain_s for model in self.config.models)])

    @property
    def url(self) -> str:
        """The address of the service for a client on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host  # noqa: S104 - Compared, not bound.
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def serve(
    config: Annotated[Path, typer.Argument(help="The Serve configuration file.")] = Path("configs/local.yaml"),
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The port for clients; by default http_options.port of the file, or 8000."),
    ] = None,
    timeout_s: Annotated[float, typer.Option(help="How long the models may take to start, in seconds.")] = 3600.0,
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="The certificate for clients with its chain, in PEM; by default that of http.tls."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The key of the certificate, in PEM.")] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Listen without TLS on an address that others reach.")
    ] = False,
) -> None:
    """Serve the models of a configuration on this machine until Ctrl-C."""
    console = Console(stderr=True, highlight=False)
    os.umask(0o077)  # Only this user may read what this command and its processes write.
    try:
        plan = load_plan(config, console, port)
        tls = choose_tls(plan.config.http, tls_certificate, tls_key, plain_http=plain_http)
        plan = replace(plan, tls=tls)
        check_encrypted(plan.host, tls, plain_http=plain_http)
        check_room(plan.config)
    except ConfigError as error:
        _fail(console, str(error))
    _clear_the_way(plan, console)
    with console.status("Preparing the models"):
        for model in plan.config.models:
            try:
                resolve_source(model.source)
            except (ValueError, OSError) as error:
                _fail(console, f"{model.id}: {error}")
    try:
        secret = asyncio.run(open_state(plan.state))
    except ConfigError as error:
        _fail(console, str(error))
    environment = serving_environment(os.environ, plan.state.state_dir, plan.config.models)
    plan.log_path.parent.mkdir(parents=True, exist_ok=True)
    with _signals() as received:
        try:
            write_serve_config(plan)
            settings = front_settings(plan)
            write_copies(settings)
            front = Front(settings, environment, plan.log_path.with_name("front.log"))
        except (OSError, CertificateFailed) as error:
            _fail(console, str(error))
        command = serve_command(plan.serve_path, choose_folder(plan.state.state_dir))
        tree = ProcessTree(command, environment, plan.log_path)
        try:
            status = _run(tree, front, plan, secret, received, console, timeout_s)
        finally:
            tree.end()
    raise typer.Exit(status)


def load_plan(path: Path, console: Console, port: int | None = None) -> ServePlan:
    """Return what a configuration file asks for; print what is wrong with it and exit if it cannot be served.

    `port` is used instead of the port in the file.
    """
    try:
        document, config = read_file(path)
        state = resolve_state(config.state, region=config.region)
        http = document.get("http_options") or {}
        host, port = str(http.get("host", "127.0.0.1")), port or int(http.get("port", 8000))
        return ServePlan(path, host, port, choose_proxy_port(port), config, state)
    except (ConfigError, OSError) as error:
        _fail(console, str(error))


def write_serve_config(plan: ServePlan) -> None:
    """Write the configuration for `serve run`.

    Raises:
        OSError: it cannot be written.
    """
    document = yaml.safe_load(plan.path.read_text(encoding="utf-8"))
    # Clients come to the front, which is on this machine.
    http = {**(document.get("http_options") or {}), "host": "127.0.0.1", "port": plan.proxy_port}
    if plan.config.tls is not None:
        http |= {"ssl_certfile": str(plan.config.tls.certificate), "ssl_keyfile": str(plan.config.tls.key)}
    document["http_options"] = http
    plan.serve_path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def front_settings(plan: ServePlan) -> FrontSettings:
    """Return the settings of the front before this service."""
    return FrontSettings(
        choose_run_dir(plan.state.state_dir),
        plan.host,
        plan.port,
        FrontTrust.from_pepper(plan.state.pepper),
        stats_host=front_stats_host(),
        stats_port=front_stats_port(),
        receive_timeout_s=plan.config.http.receive_timeout_s,
        address_bound=choose_bound(plan.config.http, plan.tls, plan.state.region),
        drain_s=plan.drain_s,
        tls=plan.tls,
        region=plan.state.region,
        ingress_tls=ingress_tls(plan.config),
    )


def _clear_the_way(plan: ServePlan, console: Console) -> None:
    if processes := abandoned_processes():
        console.print(f"Ending {len(processes)} processes left over from an earlier start.")
        end_processes(processes, patience_s=5.0)
    for port in (plan.port, *front_stats_ports()):
        if not is_free(port):
            _fail(console, describe_taken(port, plan.port, choose_run_dir(plan.state.state_dir)))


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect the signals that ask this process to stop, instead of letting them end it."""
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
    tree: ProcessTree,
    front: Front,
    plan: ServePlan,
    secret: str | None,
    received: list[int],
    console: Console,
    timeout_s: float,
) -> int:
    progress = _wait_until_ready(tree, front, plan, received, console, timeout_s)
    if progress.phase == "ready":
        link = asyncio.run(create_link(plan.state))
        off = code_interpreter_problem(plan.config.tools)
        sys.stdout.write(render_welcome(plan.url, plan.config.models, secret, plan.log_path, link, off))
        sys.stdout.flush()
        while tree.exit_status is None and not received:
            front.keep()
            time.sleep(_POLL_S)
    if received:
        front.close()
        _stop(tree, plan, received, console)
        return 0
    console.print(progress.problem or f"The service has ended. The last lines of {plan.log_path}:")
    if not progress.problem:
        with plan.log_path.open(encoding="utf-8", errors="replace") as log:
            sys.stderr.writelines(deque(log, maxlen=_LOG_LINES))
    return 1


def _wait_until_ready(
    tree: ProcessTree, front: Front, plan: ServePlan, received: list[int], console: Console, timeout_s: float
) -> Progress:
    probe = ReadinessProbe(plan.url, tree.output)
    started = time.monotonic()
    shown = ""
    console.print("Starting takes about a minute, and more on a slow or busy machine.")
    with console.status("Starting") as status:
        while not received and tree.exit_status is None:
            front.keep()
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
    """Let running requests finish, within the longest time in the configuration."""
    deadline = time.monotonic() + plan.drain_s + 30.0
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
