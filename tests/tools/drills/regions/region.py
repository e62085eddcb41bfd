"""One region: a node that runs Ray with Manta, a front with TLS, a bucket, and a part of the database and of etcd."""

import os
import secrets
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import psutil
import yaml
from rich.console import Console

from serve_app.cli.supervise.process_tree import serving_environment
from serve_app.cli.supervise.serve import ServePlan, load_plan
from tests.tools.drills.cluster import DASHBOARD_PORT, HTTP_PORT, MANTA, RAY_PORT, ROOT, START_S, Cluster, until
from tests.tools.drills.configuration import FOR_NODES
from tests.tools.drills.nodes import Node
from tests.tools.drills.regions.configuration import region_config
from tests.tools.drills.regions.places import Place
from tests.tools.drills.stores import until_answered

S3_PORT = 9000


class Region(Cluster):
    """A running service in one region."""

    def __init__(self, place: Place, folder: Path) -> None:
        """Make the region's node; nothing runs there yet. `references` is what its configuration refers to."""
        self.place = place
        self.folder = folder
        self.name = place.name
        self.node = self.head = Node(place.name, place.number, folder / place.name)
        self.workers: list[Node] = []
        self.doors = [self.node]
        self.references: dict[str, str] = {}
        self.buckets: dict[str, str] = {}
        """The address of each region's S3 server."""
        self.token = secrets.token_hex(32)
        self.changes: dict[str, Any] = {}
        self.environment: dict[str, str] = {}

    @property
    def bucket_url(self) -> str:
        """The address of the region's S3 server."""
        return f"http://{self.node.address}:{S3_PORT}"

    def start_bucket(self) -> None:
        """Start the S3 server; return when it has the bucket."""
        code = f"from moto.server import main; main(['-H', '{self.node.address}', '-p', '{S3_PORT}'])"
        self.node.start("s3", [sys.executable, "-c", code], {"PATH": os.environ["PATH"]})
        until_answered(self._make_bucket, 60, "the S3 server")

    def _make_bucket(self) -> None:
        request = urllib.request.Request(f"{self.bucket_url}/manta-{self.name}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()

    def lose(self) -> None:
        """Take the region off the network and end what runs there, but for what is in its bucket, which lasts."""
        self.node.cut()
        for name, container in self.node.containers.items():
            if name != "s3":
                container.kill()

    def restore(self) -> None:
        """Put the region back on the network, and start again what ran there."""
        self.node.heal()
        for name, container in self.node.containers.items():
            if name != "s3":
                container.start()

    def silence_bucket(self) -> None:
        """Have the S3 server answer nothing, without a word to anybody."""
        for process in self._bucket_processes():
            process.suspend()

    def wake_bucket(self) -> None:
        """Have the S3 server answer again, with what it had."""
        for process in self._bucket_processes():
            process.resume()

    def _bucket_processes(self) -> list[psutil.Process]:
        return self.node.processes(lambda title: "moto.server" in title)

    def prepare(self) -> None:
        """Write the configuration down, and make the environment of all that will run. One region at a time."""
        self.environment = self._environment()

    def start_service(self) -> None:
        """Start Ray, the front and the service on them, in the environment that `prepare` made."""
        self.start_head()
        until(lambda: self.ask("GET") is not None, START_S, "the dashboard")
        self._start_front(self.node)
        self.deploy(self.config())

    def start_head(self) -> None:
        """Start Ray on the region's only node."""
        address = self.node.address
        options = f"--head --node-ip-address={address} --port={RAY_PORT} --num-cpus=8 --dashboard-host={address}"
        self._start_ray(self.node, f"{options} --dashboard-port={DASHBOARD_PORT} --include-dashboard=true")

    def config(self) -> dict[str, Any]:
        """Return the region's configuration."""
        return region_config(self.name, self.buckets, **self.changes)

    def url_of(self, node: Node) -> str:
        """Return the address of the region's front."""
        return self.place.url

    def is_left(self) -> bool:
        """Return whether the region's front says that it should be left, or says nothing."""
        return self.health() != 200

    def health(self) -> int | None:
        """Return what the front answers on `/regionz`, None where nothing."""
        try:
            return httpx2.get(f"{self.place.url}/regionz", verify=self.place.context, timeout=2).status_code
        except httpx2.TransportError:
            return None

    def manta(self, *arguments: str) -> str:
        """Run one of the operator's commands in the region; return what it printed.

        Raises:
            RuntimeError: it failed.
        """
        return self.node.run([*MANTA, *arguments], {**self.environment, "COLUMNS": "200"})

    @property
    def config_path(self) -> Path:
        """The configuration in a file, for the operator's commands."""
        return self.folder / f"{self.name}.yaml"

    def _problem_of(self, node: Node) -> str:
        try:
            answers = [
                httpx2.get(f"{self.place.url}/readyz", verify=self.place.context, timeout=5).status_code
                for _ in range(2)
            ]
        except httpx2.TransportError as error:
            return type(error).__name__
        return "" if {*answers} == {200} else f"/readyz answers {answers}"

    def _start_front(self, node: Node) -> None:
        tls = ["--tls-certificate", str(self.place.certificate), "--tls-key", str(self.place.key)]
        dashboard = ["--dashboard", f"http://{node.address}:{DASHBOARD_PORT}"]
        command = [*MANTA, "front", str(self.config_path), "--port", str(HTTP_PORT), *tls, *dashboard]
        node.start("front", command, self.environment)

    def _environment(self) -> dict[str, str]:
        self.config_path.write_text(yaml.safe_dump(self.config(), sort_keys=False))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | self.references
        plan = load_plan_of(self.config_path, environ)
        environment = serving_environment(environ, plan.state.state_dir, plan.config.models)
        here = {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": "/mnt",
            "VLLM_RPC_BASE_PATH": "/mnt",
            "MANTA_STATE_DIR": "/mnt/state",
        }
        return environment | here | FOR_NODES | {"RAY_AUTH_TOKEN": self.token}


def load_plan_of(path: Path, environ: Mapping[str, str]) -> ServePlan:
    """Return the plan of a configuration whose references are in `environ`."""
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        return load_plan(path, Console(stderr=True))
    finally:
        os.environ.clear()
        os.environ.update(before)
