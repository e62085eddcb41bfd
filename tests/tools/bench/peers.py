"""The servers that are compared: how each is started, and where it then answers.

Each gets the same model, the same engine settings and the same environment. A peer is named on the command line as
`NAME[:ARGUMENT][?VARIABLE=VALUE&...]`, so that one server can be measured in several variants; the argument of
`manta` is its Serve config, of `url` the address of a server that already runs.
"""

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from deployments.models.demo.sources import resolve_source
from tests.tools.bench.processes import ServerTree
from tests.tools.bench.prompts import Shape, Target, create_requests

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}
START_TIMEOUT_S = 420
FIRST_PORT = 18100


class PeerFailed(Exception):
    """A peer could not be started, or stopped answering."""


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """A peer as named on the command line. `label` is what it is called in the tables."""

    name: str
    argument: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """What every peer serves, as the first model of a Serve config says. `directory` holds its weights."""

    id: str
    directory: str
    engine: dict[str, Any]
    environment: dict[str, str]
    config: Path


@dataclass(frozen=True, slots=True)
class Site:
    """What a peer is started with: a directory and ports of its own, and the model."""

    directory: Path
    port: int
    model: Model
    environment: dict[str, str]
    argument: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A server that answers. `tree` is None when it was already running elsewhere."""

    label: str
    target: Target
    tree: ServerTree | None
    environment: Mapping[str, str]


def parse_spec(text: str) -> PeerSpec:
    """Read a peer from the command line.

    Raises:
        ValueError: there is no peer of that name.
    """
    head, _, query = text.partition("?")
    name, _, argument = head.partition(":")
    if name not in STARTERS:
        raise ValueError(f"no peer is called {name!r}; there are {', '.join(STARTERS)}")
    return PeerSpec(name, argument, dict(parse_qsl(query, strict_parsing=True)) if query else {}, text)


def read_model(config: Path) -> Model:
    """Return the first model that a Serve config names, its weights in place."""
    model = yaml.safe_load(config.read_text())["applications"][0]["args"]["models"][0]
    engine = {"max_num_seqs": model["max_concurrent_requests"]} | model["engine_kwargs"]
    return Model(model["id"], resolve_source(model["source"]), engine, model.get("env", {}), config)


def start_peer(spec: PeerSpec, index: int, work_dir: Path, model: Model) -> Peer:
    """Start a server and return it once it has answered a request.

    Raises:
        PeerFailed: it ended, or did not answer in time; the message ends with its last output.
    """
    directory = work_dir / f"p{index}"
    directory.mkdir()
    port = FIRST_PORT + 20 * index
    environment = os.environ | ENVIRONMENT | model.environment | isolate(directory, port, index) | spec.variables
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment.get('PATH', '')}"
    site = Site(directory, port, model, environment, spec.argument)
    target, tree = STARTERS[spec.name](site)
    peer = Peer(spec.label, target, tree, environment)
    try:
        wait_until_ready(peer)
    except BaseException:
        stop_peer(peer)
        raise
    return peer


@contextmanager
def run_manta(model: Model) -> Iterator[Peer]:
    """Run this service alone, in a directory that goes when it ends.

    Raises:
        PeerFailed: as `start_peer`.
    """
    with TemporaryDirectory(prefix="mb-", dir="/tmp") as directory:
        peer = start_peer(parse_spec("manta"), 0, Path(directory), model)
        try:
            yield peer
        finally:
            stop_peer(peer)


def isolate(directory: Path, port: int, index: int) -> dict[str, str]:
    """Return the variables that keep several Ray clusters on one machine out of each other's way."""
    haproxy = directory / "haproxy"
    return {
        "MANTA_STATE_DIR": str(directory / "state"),
        "RAY_TMPDIR": str(directory),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(haproxy / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(haproxy / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(haproxy),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(haproxy / "state"),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(port + 1),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(port + 2),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(port + 3),
        "MANTA_FRONT_STATS_PORT": str(port + 1),  # And the one after it.
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(30000 + 300 * index),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(30299 + 300 * index),
    }


def start_bare(site: Site) -> tuple[Target, ServerTree]:
    """vLLM's own server, as it comes."""
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", site.model.directory]
    command += ["--served-model-name", site.model.id, "--host", "127.0.0.1", "--port", str(site.port)]
    for name, value in site.model.engine.items():
        option = "--" + name.replace("_", "-")
        command += [option] if value is True else [option, value if isinstance(value, str) else json.dumps(value)]
    return Target("127.0.0.1", site.port, site.model.id), run_tree(command, site)


def start_serve_llm(site: Site) -> tuple[Target, ServerTree]:
    """Ray's own OpenAI app, behind HAProxy and with Serve's throughput settings."""
    command = [sys.executable, "-m", "tests.tools.bench.serve_llm_app", str(site.port)]
    command += [site.model.id, site.model.directory, json.dumps(site.model.engine)]
    return Target("127.0.0.1", site.port, site.model.id), run_tree(command, site)


def start_manta(site: Site) -> tuple[Target, ServerTree]:
    """This service, from a Serve config, behind its front, with a key whose limits are beyond reach."""
    config = write_config(ROOT / site.argument if site.argument else site.model.config, site)
    secret = issue_key(site.environment)
    del site.environment["RAY_SERVE_ENABLE_HA_PROXY"]
    command = [sys.executable, "-c", "from serve_app.cli import main; main()", "serve", str(config)]
    tree = run_tree(command, site)
    return Target("127.0.0.1", site.port, site.model.id, secret), tree


def use_url(site: Site) -> tuple[Target, None]:
    """A server that already runs: `url:http://host:port/MODEL`, its key in `API_KEY`."""
    parts = urlsplit(site.argument)
    if parts.hostname is None or not parts.path.strip("/"):
        raise PeerFailed("a url peer is written url:http://host:port/MODEL")
    return Target(parts.hostname, parts.port or 80, parts.path[1:], site.environment.get("API_KEY")), None


STARTERS: dict[str, Callable[[Site], tuple[Target, ServerTree | None]]] = {
    "bare": start_bare,
    "serve-llm": start_serve_llm,
    "manta": start_manta,
    "url": use_url,
}


def run_tree(command: list[str], site: Site) -> ServerTree:
    """Start a command as a tree of its own."""
    return ServerTree(command, site.environment, site.directory / "output.log", ROOT)


def write_config(source: Path, site: Site) -> Path:
    """Copy a Serve config to the peer's directory with its port put in; return the copy's path."""
    config = yaml.safe_load(source.read_text())
    config.setdefault("http_options", {}).update(host="127.0.0.1", port=site.port)
    if not site.argument:  # A scenario may have changed how many requests the model runs at once.
        served = config["applications"][0]["args"]["models"][0]
        served["max_concurrent_requests"] = served["engine_kwargs"]["max_num_seqs"] = site.model.engine["max_num_seqs"]
    copy = site.directory / "config.yaml"
    copy.write_text(yaml.safe_dump(config, sort_keys=False))
    return copy


def issue_key(environment: Mapping[str, str], account: str = "bench") -> str:
    """Issue a key through the operator's command line and return its secret; its limits are beyond reach."""
    command = [sys.executable, "-c", "from serve_app.cli import main; main()", "keys", "create", "--json"]
    command += ["--account", account, "--tier", "enterprise"]
    command += ["--requests-per-minute", "10000000", "--tokens-per-minute", "100000000000"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise PeerFailed(f"no key was issued: {done.stderr[-2000:]}")
    return str(json.loads(done.stdout)["secret"])


def wait_until_ready(peer: Peer) -> None:
    """Wait until a peer answers a short chat request."""
    request = create_requests(peer.target, Shape(4, 4, is_stream=False), 1, "ready")[0]
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        if peer.tree is not None and peer.tree.has_ended:
            raise PeerFailed(f"{peer.label} ended:\n{peer.tree.last_lines()}")
        connection = http.client.HTTPConnection(peer.target.host, peer.target.port, timeout=60)
        try:
            connection.connect()
            connection.sock.sendall(request.payload)
            response = http.client.HTTPResponse(connection.sock)
            response.begin()
            answer = response.read()
            if response.status == 200:
                return
            seen = f"{response.status}: {answer[:500].decode(errors='replace')}"
        except (OSError, http.client.HTTPException) as error:
            seen = repr(error)
        finally:
            connection.close()
        if time.monotonic() > deadline:
            log = peer.tree.last_lines() if peer.tree is not None else ""
            raise PeerFailed(f"{peer.label} did not answer in {START_TIMEOUT_S} s ({seen})\n{log}")
        time.sleep(0.5)


def stop_peer(peer: Peer) -> None:
    """End a peer that was started here."""
    if peer.tree is not None:
        peer.tree.stop()
