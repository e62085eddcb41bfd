"""`manta config` checks configuration files; `manta doctor` also checks whether this machine can serve one."""

import asyncio
import importlib.metadata
import json
import re
import resource
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import psutil
import typer

from deployments.config import ConfigError
from deployments.state.config import ResolvedState, resolve_state
from deployments.state.database.connection import Database, connect
from deployments.state.objects import marker
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import StoreUnavailable
from deployments.tools.config import CodeInterpreterConfig, ToolsConfig
from deployments.tools.sandbox.host import prepare_host
from deployments.tools.sandbox.root import SandboxUnavailable
from deployments.tools.web_search.providers import create_provider
from serve_app.cli.supervise.front import describe_holder, front_stats_ports, is_free
from serve_app.cli.supervise.process_tree import abandoned_processes
from serve_app.config import ServiceConfig, check_file, read_file
from serve_app.front.supervisor import HaproxyMissing, find_haproxy

app = typer.Typer(help="Check configuration files, or show their schema.", no_args_is_help=True)

_LOCKS = Path(__file__).parents[2] / "configs" / "locks"
_SWAPS = Path("/proc/swaps")
_CUDA_ONLY = ("torchvision", "torchaudio", "torchcodec")
_GIB = 1024**3
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Ray keeps its object store there.
_MIN_MEMORY_BYTES = 6 * _GIB
_MIN_SHARED_MEMORY_BYTES = 1 * _GIB
_MIN_OPEN_FILES = 16_384


@app.command()
def check(files: Annotated[list[Path], typer.Argument(help="Serve configuration files.")]) -> None:
    """Check whether files can be deployed; print one line for each fault, and exit with 1 if there is one."""
    faults = [fault for path in files for fault in check_file(path)]
    typer.echo("\n".join(faults) or f"{len(files)} files can be deployed")
    raise typer.Exit(1 if faults else 0)


@app.command()
def schema() -> None:
    """Print the JSON schema of the application's `args`."""
    typer.echo(json.dumps(ServiceConfig.model_json_schema(), indent=2))


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with what to do if it failed."""

    state: Literal["ok", "warning", "fault"]
    text: str


def doctor(
    config: Annotated[Path, typer.Argument(help="The Serve configuration file.")] = Path("configs/local.yaml"),
) -> None:
    """Check whether this machine can serve a configuration; exit with 1 if there is a fault."""
    has_fault = False
    for finding in examine(config):
        typer.echo(f"{finding.state:8} {finding.text}")
        has_fault |= finding.state == "fault"
    raise typer.Exit(1 if has_fault else 0)


def examine(path: Path) -> Iterator[Finding]:
    """Yield the results of all checks, in the order in which a start needs them."""
    yield _python()
    faults = check_file(path)
    if faults:
        yield from (Finding("fault", fault) for fault in faults)
        return
    document, config = read_file(path)
    yield Finding("ok", f"{path} can be deployed: {', '.join(model.id for model in config.models)}")
    needs_gpu = any(model.device == "gpu" for model in config.models)
    yield from _packages("gpu" if needs_gpu else "cpu")
    if needs_gpu:
        yield _gpu()
    yield from _resources()
    yield _haproxy()
    yield from _ports(int((document.get("http_options") or {}).get("port", 8000)))
    yield _left_over()
    yield from _state(config)
    if config.tools.code_interpreter is not None:
        yield _sandboxes(config.tools.code_interpreter)
        yield from _swap()
    if config.tools.web_search is not None:
        yield _web_search(config.tools)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if (3, 11) <= sys.version_info < (3, 13):
        return Finding("ok", f"Python {version}")
    return Finding("fault", f"Python {version}: 3.11 or 3.12 is needed")


def _packages(profile: str) -> Iterator[Finding]:
    """Compare the installed packages with the profile's list, which only a checkout of the project has."""
    installed = {
        re.sub(r"[-_.]+", "-", distribution.name).lower(): distribution.version
        for distribution in importlib.metadata.distributions()
    }
    if installed.get("torch", "").endswith("+cpu"):
        for name in _CUDA_ONLY:
            if name in installed:
                text = f"{name} is installed beside the CPU build of torch and fails at import: uninstall it"
                yield Finding("fault", text)
    lock = _LOCKS / f"{profile}.txt"
    if not lock.exists():
        return
    pins = [line.split("==") for line in lock.read_text().splitlines() if "==" in line]
    missing = [name for name, _ in pins if name not in installed]
    others = [f"{name} {installed[name]}" for name, version in pins if installed.get(name, version) != version]
    if missing:
        yield Finding("fault", f"Packages of the {profile} profile that are not installed: {', '.join(missing)}")
    if others:
        yield Finding("warning", f"Packages in other versions than those tested: {', '.join(others)}")
    if not missing and not others:
        yield Finding("ok", f"All {len(pins)} packages of the {profile} profile")


def _gpu() -> Finding:
    if Path("/dev/nvidiactl").exists() and shutil.which("nvidia-smi"):
        return Finding("ok", "An NVIDIA driver is there")
    return Finding("fault", "The configuration has models for GPUs, but there is no NVIDIA driver on this machine")


def _resources() -> Iterator[Finding]:
    available = psutil.virtual_memory().available
    state: Literal["ok", "warning"] = "ok" if available >= _MIN_MEMORY_BYTES else "warning"
    hint = "" if state == "ok" else ": local.yaml takes about 6 GiB"
    yield Finding(state, f"{available / _GIB:.1f} GiB of memory are free{hint}")
    shared = shutil.disk_usage(_SHARED_MEMORY).total if _SHARED_MEMORY.is_dir() else 0
    if shared < _MIN_SHARED_MEMORY_BYTES:
        yield Finding("warning", f"{_SHARED_MEMORY} has {shared / _GIB:.1f} GiB; Ray wants 1 GiB or more there")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _MIN_OPEN_FILES:
        yield Finding("warning", f"A process may open {soft} files, which bounds the connections: ulimit -n 65536")


def _haproxy() -> Finding:
    try:
        return Finding("ok", f"HAProxy, for the front: {find_haproxy()}")
    except HaproxyMissing as error:
        return Finding("fault", f"There is no HAProxy for the front: {error}")


def _ports(http_port: int) -> Iterator[Finding]:
    taken = [port for port in (http_port, *front_stats_ports()) if not is_free(port)]
    for port in taken:
        yield Finding("fault", f"Port {port} is taken{describe_holder(port)}")
    if not taken:
        yield Finding("ok", f"Port {http_port} is free")


def _left_over() -> Finding:
    if processes := abandoned_processes():
        pids = ", ".join(str(process.pid) for process in processes)
        return Finding("warning", f"Processes of an earlier start are still running; the next start ends them: {pids}")
    return Finding("ok", "No processes are left of an earlier start")


def _state(config: ServiceConfig) -> Iterator[Finding]:
    try:
        state = resolve_state(config.state, region=config.region)
        yield from asyncio.run(_look_at_state(state))
    except ConfigError as error:
        yield Finding("fault", str(error))


async def _look_at_state(state: ResolvedState) -> list[Finding]:
    database = await connect(state.database_url)
    found = [Finding("ok", "The database answers, and its tables are up to date")]
    try:
        for place in (state.object_store, state.object_store.other):
            if place is not None:
                found.append(await _look_at_objects(database, place))
    finally:
        await database.close()
    return found


async def _look_at_objects(database: Database, place: ResolvedObjectStore) -> Finding:
    try:
        await marker.check(database, marker.create_objects(place), place.url, place.name)
    except ConfigError as error:
        return Finding("fault", str(error))
    except StoreUnavailable:
        message = "does not answer: files and batches will get a 503 until it does"
        return Finding("warning", f"The object store {place.url} {message}")
    return Finding("ok", "The object store answers, and belongs to the database")


def _web_search(config: ToolsConfig) -> Finding:
    try:
        create_provider(config)
    except ConfigError as error:
        return Finding("fault", str(error))
    return Finding("ok", "The web search has what it needs to ask its provider")


def _sandboxes(config: CodeInterpreterConfig) -> Finding:
    try:
        asyncio.run(prepare_host(config.limits, config.packages))
    except SandboxUnavailable as error:
        return Finding("warning", f"The code interpreter will be off: {error}")
    return Finding("ok", "Sandboxes for the code interpreter can be built")


def _swap() -> Iterator[Finding]:
    """Yield a warning if memory may be written to a disk. zram swaps to memory."""
    try:
        places = [line.split()[0] for line in _SWAPS.read_text().splitlines()[1:]]
    except OSError:
        return
    if any(not place.startswith("/dev/zram") for place in places):
        yield Finding(
            "warning",
            "This machine has swap, so the content of code interpreter containers may be written to a disk: switch it "
            "off (swapoff -a), unless it is encrypted",
        )
