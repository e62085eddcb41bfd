"""The roles of a service's processes, and how a process table shows them."""

from collections.abc import Callable

import psutil

from tests.tools.drills.cluster import Cluster
from tests.tools.drills.nodes import Node


def _begins(title: str) -> Callable[[str], bool]:
    return lambda line: line.startswith(title)


def _has(*words: str) -> Callable[[str], bool]:
    return lambda line: any(word in line for word in words) and not line.startswith(("sh ", "ip ", "unshare "))


ROLES: dict[str, Callable[[str], bool]] = {
    "ServeController": _begins("ray::ServeController"),
    "ProxyActor": _begins("ray::ProxyActor"),
    "HAProxy": lambda line: line.split(" ")[0].endswith("/haproxy"),
    "front's agent": _has("serve_app.front.agent"),
    "gatekeeper": _begins("ray::GatekeeperActor"),
    "coordinator": _begins("ray::BatchCoordinator"),
    "EngineCore": _has("EngineCore"),
    "model replica": _begins("ray::ServeReplica:manta:model:"),
    "ingress replica": _begins("ray::ServeReplica:manta:ingress"),
    "raylet": _has("/raylet/raylet "),
    "dashboard agent": _begins("ray::DashboardAgent"),
    "runtime environment agent": _begins("ray::RuntimeEnvAgent"),
    "dashboard": _has("dashboard/dashboard.py"),
    "log monitor": _has("_private/log_monitor.py"),
    "autoscaler": _has("autoscaler/_private/monitor.py", "autoscaler/v2/monitor.py"),
    "gcs_server": _has("/gcs/gcs_server "),
}


def find(cluster: Cluster, role: str, node: Node | None = None) -> list[tuple[Node, psutil.Process]]:
    """Return the processes of a role, each with its node; only those on `node` where one is given."""
    found = cluster.processes(ROLES[role])
    return [(where, process) for where, process in found if node is None or where is node]


def count(cluster: Cluster, role: str) -> int:
    """Return how many processes have a role."""
    return len(find(cluster, role))
