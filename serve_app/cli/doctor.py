"""`manta doctor` checks whether this machine can serve a configuration. It creates and changes nothing."""

import asyncio
import importlib.metadata
import os
import re
import resource
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import psutil
import typer
from sqlalchemy.exc import DBAPIError

from deployments.config import ConfigError
from deployments.models.config import VLLM
from deployments.models.whereabouts import find_on_hub, is_cached, is_on_hub
from deployments.state.config import ResolvedState, resolve_state
from deployments.state.database.connection import Database
from deployments.state.database.looking import looking_at
from deployments.state.objects import marker
from deployments.state.objects.config import ResolvedObjectStore
from deployments.state.objects.store import StoreUnavailable
from deployments.tools.config import ToolsConfig
from deployments.tools.web_search.providers import create_provider
from serve_app.checks.check import Finding, check_file, read_file
from serve_app.cli.output import JsonOption, counted, print_json
from serve_app.cli.supervise.front import describe_taken, find_holder, front_stats_ports, is_free
from serve_app.cli.supervise.machine import GIB, code_interpreter_problem, count_gpus, find_shortages
from serve_app.cli.supervise.process_tree import abandoned_processes
from serve_app.config import ServiceConfig
from serve_app.front.settings import choose_run_dir
from serve_app.front.supervisor import HaproxyMissing, find_haproxy

_LOCKS = Path(__file__).parents[2] / "configs" / "locks"
_SWAPS = Path("/proc/swaps")
_CUDA_ONLY = ("torchvision", "torchaudio", "torchcodec")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - Ray keeps its object store there.
_MIN_MEMORY_BYTES = 6 * GIB
_MIN_SHARED_MEMORY_BYTES = 1 * GIB
_MIN_OPEN_FILES = 16_384
_PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
_MIN_DISK_BYTES = 4 * GIB
_DATABASE = {
    "empty": Finding("ok", "The database answers, and is empty: the first start creates its tables"),
    "old": Finding("ok", "The database answers, and the next start brings its tables up to date"),
    "current": Finding("ok", "The database answers, and its tables are up to date"),
    "unknown": Finding(
        "fault", "The database has tables of a version that this one does not know: start the version that wrote them"
    ),
}
_FEW = 5


def doctor(
    config: Annotated[Path, typer.Argument(help="The Serve configuration file.")] = Path("configs/local.yaml"),
    as_json: JsonOption = False,
) -> None:
    """Check whether this machine can serve a configuration; exit with 1 if there is a fault. It changes nothing."""
    findings = examine(config)
    if as_json:
        findings = iter(listed := list(findings))
        print_json(listed)
    has_fault = False
    for finding in findings:
        if not as_json:
            typer.echo(f"{finding.state:8} {finding.text}")
        has_fault |= finding.state == "fault"
    raise typer.Exit(1 if has_fault else 0)


def examine(path: Path) -> Iterator[Finding]:
    """Yield the results of all checks, in the order in which a start needs them."""
    yield _python()
    findings = check_file(path)
    yield from findings
    if any(finding.state == "fault" for finding in findings):
        return
    document, config = read_file(path)
    yield Finding("ok", f"{path} can be deployed: {', '.join(model.id for model in config.models)}")
    needs_gpu = any(model.device == "gpu" for model in config.models)
    yield from _packages("gpu" if needs_gpu else "cpu", path)
    if needs_gpu:
        yield _gpu()
    yield from _on_hub(config)
    yield from _resources(config)
    yield _haproxy()
    try:
        state = resolve_state(config.state, region=config.region, may_create=False)
    except ConfigError as error:
        yield Finding("fault", str(error))
    else:
        yield from _ports(int((document.get("http_options") or {}).get("port", 8000)), state)
        yield from look_at_state(state)
    yield _left_over()
    if config.tools.code_interpreter is not None:
        yield _code_interpreter(config.tools)
        yield from _swap()
    if config.tools.web_search is not None:
        yield _web_search(config.tools)


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if (3, 11) <= sys.version_info < (3, 13):
        return Finding("ok", f"Python {version}")
    return Finding("fault", f"Python {version}: 3.11 or 3.12 is needed")


def _packages(profile: str, path: Path) -> Iterator[Finding]:
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
    pins = _PIN.findall(lock.read_text())
    missing = [name for name, _ in pins if name not in installed]
    others = [f"{name} {installed[name]}" for name, version in pins if installed.get(name, version) != version]
    if missing:
        which = f": {', '.join(missing)}" if len(missing) <= _FEW else f", {len(missing)} of {len(pins)}"
        text = f"Packages of the {profile} profile are not installed{which}. Run: make install CONFIG={path}"
        yield Finding("fault", text)
    if others:
        more = f" and {len(others) - _FEW} more" if len(others) > _FEW else ""
        text = f"Packages in other versions than those tested: {', '.join(others[:_FEW])}{more}"
        yield Finding("warning", f"{text}. Run: make install CONFIG={path}")
    if not missing and not others:
        yield Finding("ok", f"All {len(pins)} packages of the {profile} profile")


def _gpu() -> Finding:
    if count := count_gpus():
        return Finding("ok", counted(count, "NVIDIA GPU"))
    return Finding("fault", "The configuration has models for GPUs, but there is no NVIDIA driver on this machine")


def _on_hub(config: ServiceConfig) -> Iterator[Finding]:
    """Yield a finding for each model that is fetched from the hub at the first start."""
    for model in config.models:
        if model.engine != VLLM or not is_on_hub(model.source):
            continue
        if is_cached(model.source):
            yield Finding("ok", f"{model.source} is in the cache of the hub")
        elif (problem := find_on_hub(model.source)) is not None:
            yield Finding("warning", f"{model.id}: {problem}")
        else:
            yield Finding("ok", f"{model.source} is on the hub, and is downloaded at the first start")


def _resources(config: ServiceConfig) -> Iterator[Finding]:
    shortages = list(find_shortages(config))
    yield from (Finding("fault", text) for text in shortages)
    if not shortages:
        yield Finding("ok", "The models fit on this machine")
    available = psutil.virtual_memory().available
    state: Literal["ok", "warning"] = "ok" if available >= _MIN_MEMORY_BYTES else "warning"
    hint = "" if state == "ok" else ": local.yaml takes about 6 GiB"
    yield Finding(state, f"{available / GIB:.1f} GiB of memory are free{hint}")
    shared = shutil.disk_usage(_SHARED_MEMORY).total if _SHARED_MEMORY.is_dir() else 0
    if shared < _MIN_SHARED_MEMORY_BYTES:
        yield Finding("warning", f"{_SHARED_MEMORY} has {shared / GIB:.1f} GiB; Ray wants 1 GiB or more there")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _MIN_OPEN_FILES:
        yield Finding("warning", f"A process may open {soft} files, which bounds the connections: ulimit -n 65536")


def _haproxy() -> Finding:
    try:
        return Finding("ok", f"HAProxy, for the front: {find_haproxy()}")
    except HaproxyMissing as error:
        return Finding("fault", f"There is no HAProxy for the front: {error}")


def _ports(http_port: int, state: ResolvedState) -> Iterator[Finding]:
    run_dir = choose_run_dir(state.state_dir)
    taken = [port for port in (http_port, *front_stats_ports()) if not is_free(port)]
    own = [port for port in taken if (holder := find_holder(port, run_dir)) is not None and holder.is_own]
    if own:
        yield Finding("ok", f"Manta runs here already, on port {', '.join(map(str, own))}")
    for port in taken:
        if port not in own:
            yield Finding("fault", describe_taken(port, http_port, run_dir))
    if not taken:
        yield Finding("ok", f"Port {http_port} is free")


def _left_over() -> Finding:
    if processes := abandoned_processes():
        pids = ", ".join(str(process.pid) for process in processes)
        return Finding("warning", f"Processes of an earlier start are still running; the next start ends them: {pids}")
    return Finding("ok", "No processes are left of an earlier start")


def _web_search(config: ToolsConfig) -> Finding:
    try:
        create_provider(config)
    except ConfigError as error:
        return Finding("fault", str(error))
    return Finding("ok", "The web search has what it needs to ask its provider")


def _code_interpreter(tools: ToolsConfig) -> Finding:
    if (problem := code_interpreter_problem(tools)) is not None:
        return Finding("warning", f"Code interpreter: off, {problem}")
    return Finding("ok", "Code interpreter: this machine can build its sandboxes")


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


def look_at_state(state: ResolvedState) -> Iterator[Finding]:
    """Yield what is found of the state that a configuration names."""
    yield from _look_at_folder(state.state_dir)
    try:
        yield from asyncio.run(_gather(state))
    except ConfigError as error:
        yield Finding("fault", str(error))


def _look_at_folder(folder: Path) -> Iterator[Finding]:
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("fault", f"This user may not write into {there}, where the state goes")
        return
    free = shutil.disk_usage(there).free
    text = f"{free / GIB:.1f} GiB of disk are free for the state in {folder}"
    yield Finding("ok", text) if free >= _MIN_DISK_BYTES else Finding("warning", f"{text}: free some, or set state_dir")


async def _gather(state: ResolvedState) -> list[Finding]:
    return [finding async for finding in _look(state)]


async def _look(state: ResolvedState) -> AsyncIterator[Finding]:
    async with looking_at(state.database_url) as look:
        if look.state == "missing":
            yield Finding("ok", "There is no database yet: the first start creates it")
        else:
            yield _DATABASE[look.state]
        if look.state == "unknown":
            return
        for place in (state.object_store, state.object_store.other):
            if place is not None:
                yield await _look_at_objects(look.database if look.state in ("old", "current") else None, place)


async def _look_at_objects(database: Database | None, place: ResolvedObjectStore) -> Finding:
    is_missing = _is_missing(place.url)
    if is_missing and database is None:
        return Finding("ok", f"There is no folder for {place.url} yet: the first start creates it")
    try:
        objects = None if is_missing else marker.create_objects(place)
        await marker.check(database, objects, place.url, place.name)
    except ConfigError as error:
        return Finding("fault", str(error))
    except DBAPIError:
        return Finding(
            "warning", f"Whether {place.url} belongs to the database can only be checked once its tables are up to date"
        )
    except StoreUnavailable:
        message = "does not answer: files and batches will get a 503 until it does"
        return Finding("warning", f"The object store {place.url} {message}")
    return Finding("ok", "The object store answers, and belongs to the database")


def _is_missing(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "file" and not Path(unquote(parts.path)).exists()
