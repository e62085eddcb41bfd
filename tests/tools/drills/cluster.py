"""Manta on several nodes: Ray on each of them, the stores on another, deployed as an operator does."""

import os
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import psutil
import yaml
from rich.console import Console

from serve_app.cli.supervise.process_tree import serving_environment
from serve_app.cli.supervise.serve import load_plan
from tests.tools.drills.configuration import ENGINES, FOR_NODES, service_config
from tests.tools.drills.nodes import Node, name_hosts, title_of, until
from tests.tools.drills.stores import REDIS_PASSWORD, Stores

ROOT = Path(__file__).parents[3]
MANTA = [sys.executable, "-c", "from serve_app.cli import main; main()"]
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]
HEAD_NAME = "manta-head"
HTTP_PORT, PROXY_PORT, RAY_PORT, DASHBOARD_PORT = 8000, 8001, 6380, 8265
START_S, REST_S = 300.0, 240.0
REPLICAS = ("ray::ServeReplica:manta:ingress", "ray::ServeReplica:manta:model:")
"""How the titles of replicas' processes begin."""


class Cluster:
    """A running service on nodes. The first node is Ray's head; clients reach those in `doors`."""

    def __init__(self, folder: Path, num_workers: int, engine: str, code: Path = ROOT) -> None:
        """Make the nodes; the head serves too, unless there are two workers or more.

        `engine` names one of `configuration.ENGINES`. `code` is the folder whose version of Manta runs.
        """
        self.engine = ENGINES[engine]
        self.folder = folder
        self._code = code
        self._make_nodes(num_workers)
        self.stores = Stores(Node("stores", 10, folder / "stores"), sys.executable, code)
        self.token = secrets.token_hex(32)
        self.changes: dict[str, Any] = {}
        """Fields in which the model's configuration differs from the engine's own."""
        self.environment: dict[str, str] = {}
        self._former_heads: list[Node] = []
        self._former_workers: list[Node] = []

    def _make_nodes(self, num_workers: int, first: int = 11, suffix: str = "") -> None:
        """Make the head and the workers; the number of the head is `first`."""
        names = {f"worker-{n}{suffix}": first + 9 + n for n in range(1, num_workers + 1)}
        self._head_name = f"{HEAD_NAME}{suffix}"
        self.head = Node(f"head{suffix}", first, self.folder / f"head{suffix}")
        self.workers = [Node(name, number, self.folder / name) for name, number in names.items()]
        self.doors = self.workers if num_workers > 1 else self.nodes
        """The nodes that serve."""

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the Ray cluster."""
        return [self.head, *self.workers]

    def start(self) -> None:
        """Start everything; return when the service is at rest."""
        self.stores.start(dict(os.environ))
        self._start_nodes()

    def succeed(self) -> list[Node]:
        """Start a cluster of this version beside the one that runs, on the same stores; return the former's nodes."""
        former = self.nodes
        self._former_heads.append(self.head)
        self._former_workers += self.workers
        self._code = ROOT
        self._make_nodes(len(self.workers), 61, "-b")
        self._start_nodes()
        return former

    def _start_nodes(self) -> None:
        name_hosts(self.folder, {self._head_name: self.head.address})
        self.environment = self._environment()
        self.start_head()
        until(lambda: self.ask("GET") is not None, START_S, "the head's dashboard")
        for node in self.workers:
            self.start_worker(node)
        until(lambda: self._num_raylets() == len(self.nodes), START_S, "the workers")
        for node in self.doors:
            self._start_front(node)
        self.deploy(self.config())
        self.until_at_rest(START_S)

    def start_head(self) -> None:
        """Start the head node's Ray."""
        cpus = 8 if self.head in self.doors else 0
        address = self.head.address
        options = f"--head --node-ip-address={address} --port={RAY_PORT} --num-cpus={cpus} --dashboard-host={address}"
        options += f" --dashboard-port={DASHBOARD_PORT} --include-dashboard=true"
        if self.stores.has_redis:  # Ray 2.60 reads no password from the environment.
            options += f" --redis-password={REDIS_PASSWORD}"
        self._start_ray(self.head, options)

    def start_worker(self, node: Node) -> None:
        """Start Ray on another node."""
        self._start_ray(node, f"--address={self._head_name}:{RAY_PORT} --node-ip-address={node.address} --num-cpus=8")

    def add_worker(self) -> Node:
        """Return a new node that serves; it runs Ray and a front, and has no replica yet."""
        number = 1 + max(int(node.name.rpartition("-")[2]) for node in [*self.workers, *self._former_workers])
        node = Node(f"worker-{number}", 20 + number, self.folder / f"worker-{number}")
        self.start_worker(node)
        self.workers.append(node)
        until(lambda: node.has_process(is_raylet), START_S, "the new worker")
        self._start_front(node)
        until(lambda: self._problem_of(node) == "", START_S, "the new worker's front")
        return node

    def drain(self, node: Node) -> None:
        """Have Ray drain a node; return when nothing of the service runs there and the service is at rest."""
        options = f"--address={self.head.address}:{RAY_PORT} --node-id={self._ray_id_of(node)} --reason-message=drill"
        reason = "--reason=DRAIN_NODE_REASON_PREEMPTION --deadline-remaining-seconds=600"
        command = [*RAY, "drain-node", *options.split(), *reason.split()]
        self.head.run(command, self.environment)
        until(lambda: not node.has_process(is_moved), REST_S, "the move of replicas, gatekeeper and coordinator")
        self.until_at_rest()

    def retire(self, node: Node) -> None:
        """End a node in peace: its front lets requests end, then Ray leaves."""
        for name in ("front", "ray"):
            if name in node.containers:
                node.containers[name].stop()
        if node in self.workers:
            self.workers.remove(node)
            self._former_workers.append(node)

    def _ray_id_of(self, node: Node) -> str:
        answer = httpx2.get(f"{self._dashboard}/nodes?view=summary", headers=self._headers, timeout=20)
        of_nodes = [one["raylet"] for one in answer.json()["data"]["summary"]]
        return next(
            str(one["nodeId"])
            for one in of_nodes
            if one["nodeManagerAddress"] == node.address and one["state"] == "ALIVE"
        )

    def replace_head(self) -> None:
        """Replace the head, which is dead, by a new node at another address: its name moves with it."""
        assert self.head not in self.doors
        self._former_heads.append(self.head)
        number = 11 + len(self._former_heads)
        self.head = Node(f"head-{number}", number, self.folder / f"head-{number}")
        name_hosts(self.folder, {self._head_name: self.head.address})
        self.start_head()

    def is_spread(self) -> bool:
        """Return whether every node that serves has a replica of the ingress and one of the model."""
        titles = [[title_of(process) for process in node.processes()] for node in self.doors]
        return all(any(title.startswith(role) for title in of_node) for of_node in titles for role in REPLICAS)

    def spread(self) -> None:
        """Deploy a change, which replaces every replica: Serve moves none to a node that came back.

        Raises:
            TimeoutError: the service does not come to rest.
        """
        self.deploy(self.changed_config())
        self.until_at_rest()

    def changed_config(self) -> dict[str, Any]:
        """Return a configuration in which the ingress and the model differ from those of now."""
        self.changes = {} if self.changes else {"max_queued_requests": 333}
        return self.config()

    def config(self) -> dict[str, Any]:
        """Return the configuration."""
        return service_config(self.engine, self.stores.s3_url, PROXY_PORT, **self.changes)

    def deploy(self, config: dict[str, Any]) -> None:
        """Have Serve move to a configuration, as `serve deploy` does."""
        answer = self.ask("PUT", config)
        assert answer is not None, "the dashboard does not answer"
        assert answer.status_code == 200, answer.text

    def ask(self, method: str, body: Any = None) -> httpx2.Response | None:
        """Return the dashboard's answer about the applications, None where there is none."""
        url = f"{self._dashboard}/api/serve/applications/"
        try:
            timeout_s = 20 if body is None else 120  # The first deployment starts Serve, before it is answered.
            return httpx2.request(method, url, json=body, headers=self._headers, timeout=timeout_s)
        except httpx2.TransportError:
            return None

    @property
    def _dashboard(self) -> str:
        return f"http://{self.head.address}:{DASHBOARD_PORT}"

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def until_at_rest(self, timeout_s: float = REST_S) -> float:
        """Return how many seconds it took until every replica runs and every node answers."""
        began = time.monotonic()
        until(lambda: self.unrest() == "", timeout_s, "the service at rest", self.unrest)
        return time.monotonic() - began

    def unrest(self) -> str:
        """Return what is not yet as the configuration says, "" where all is."""
        answer = self.ask("GET")
        if answer is None or answer.status_code != 200:
            return "the dashboard does not answer"
        application = answer.json().get("applications", {}).get("manta")
        if application is None or application["status"] != "RUNNING":
            return f"the application is {application and application['status']}"
        for name, deployment in application["deployments"].items():
            states = [replica["state"] for replica in deployment["replicas"]]
            if (
                deployment["status"] != "HEALTHY"
                or {*states} - {"RUNNING"}
                or len(states) < deployment["target_num_replicas"]
            ):
                return f"{name}: {deployment['status']}, {states}"
        for node in self.doors:
            if problem := self._problem_of(node):
                return f"{node.name}: {problem}"
        return ""

    def _problem_of(self, node: Node) -> str:
        try:
            answers = [httpx2.get(f"{self.url_of(node)}/readyz", timeout=5).status_code for _ in range(3)]
        except httpx2.TransportError as error:
            return type(error).__name__
        return "" if {*answers} == {200} else f"/readyz answers {answers}"

    def url_of(self, node: Node) -> str:
        """Return the address of the service on a node."""
        return f"http://{node.address}:{HTTP_PORT}"

    def processes(self, matches: Callable[[str], bool]) -> list[tuple[Node, psutil.Process]]:
        """Return the service's processes whose command line matches, each with its node."""
        return [(node, process) for node in self.nodes for process in node.processes(matches)]

    def remove(self) -> None:
        """End every node, and the stores."""
        for node in [*self.nodes, *self._former_heads, *self._former_workers, self.stores.node]:
            node.remove()

    def _start_ray(self, node: Node, options: str) -> None:
        paths = "--object-store-memory=100000000 --disable-usage-stats --temp-dir=/mnt/ray"
        command = [*RAY, "start", "--block", *options.split(), *paths.split()]
        node.start("ray", command, self.environment, lambda: node.has_process(is_raylet))

    def _start_front(self, node: Node) -> None:
        seeds = [
            option for other in self.doors if other is not node for option in ("--seed", f"{other.address}:{HTTP_PORT}")
        ]
        dashboard = ["--dashboard", f"http://{self._head_name}:{DASHBOARD_PORT}"]
        node.start(
            "front", [*MANTA, "front", "--plain-http", "--port", str(HTTP_PORT), *seeds, *dashboard], self.environment
        )

    def _num_raylets(self) -> int:
        return len(self.processes(is_raylet))

    def _environment(self) -> dict[str, str]:
        """Return what the cluster runs with: what `manta serve` would set, and where the stores are."""
        own = {
            "MANTA_DATABASE_URL": self.stores.database_url,
            "MANTA_PEPPER": "p" * 64,
            "MANTA_MASTER_KEY": "ab" * 32,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "MANTA_STATE_DIR": "/mnt/state",
        }
        os.environ.update(own)
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(self.config(), sort_keys=False))
        plan = load_plan(path, Console(stderr=True))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment = serving_environment(environ, plan.state.state_dir, plan.config.models)
        environment |= {"RAY_AUTH_TOKEN": self.token, "PYTHONPATH": str(self._code), "TMPDIR": "/mnt"}
        environment |= {"VLLM_RPC_BASE_PATH": "/mnt", **FOR_NODES}
        if self.stores.has_redis:
            environment |= {
                "RAY_REDIS_ADDRESS": self.stores.redis_address,
                "RAY_external_storage_namespace": self._head_name,
            }
        return environment


def is_raylet(title: str) -> bool:
    """Return whether a command line is that of a raylet, without which a node is of no use to Ray."""
    return "/raylet/raylet " in title


def is_moved(title: str) -> bool:
    """Return whether a command line is that of what leaves a node which drains."""
    return title.startswith((*REPLICAS, "ray::GatekeeperActor", "ray::BatchCoordinator"))
