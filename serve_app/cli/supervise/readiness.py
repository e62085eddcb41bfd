"""The progress of a starting service, read from Ray's dashboard and its own /readyz."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx2

from serve_app.front.asking import any_certificate, read_ray_token

_DASHBOARD = re.compile(rb"dashboard at.*?(https?://[\w.:-]+)")
_TIMEOUT_S = 2.0

Phase = Literal["starting", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the service is. `waiting_for` names the parts that have not started; `problem` is Serve's message."""

    phase: Phase
    waiting_for: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class ReadinessProbe:
    """Asks one service how far it is.

    `read_output` returns the output of its start, which contains the dashboard's address.
    """

    url: str
    read_output: Callable[[], bytes]
    _dashboard: str | None = field(default=None, init=False)

    def look(self) -> Progress:
        """Return how far the service is; it is starting while it cannot be asked."""
        application = self._application()
        if application is None:
            return Progress("starting", ("Ray, which runs the parts of the service",))
        status = application.get("status")
        if status in ("DEPLOY_FAILED", "UNHEALTHY"):
            return Progress("failed", problem=_problem_of(application))
        waiting_for = tuple(
            _display_name(name)
            for name, deployment in (application.get("deployments") or {}).items()
            if deployment.get("status") != "HEALTHY"
        )
        if status != "RUNNING" or waiting_for:
            return Progress("starting", waiting_for or ("the application",))
        answered = _get(f"{self.url}/readyz")
        return Progress("ready") if answered and answered[0] == 200 else Progress("starting", ("the HTTP front",))

    def _application(self) -> dict[str, Any] | None:
        if self._dashboard is None:
            found = _DASHBOARD.search(self.read_output())
            self._dashboard = found[1].decode() if found else None
        if self._dashboard is None:
            return None
        token = read_ray_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answered = _get(f"{self._dashboard}/api/serve/applications/", headers)
        if answered is None or answered[0] != 200:
            return None
        applications = json.loads(answered[1]).get("applications") or {}
        return next(iter(applications.values()), None)


def _get(url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes] | None:
    try:
        # A check on this machine, whose certificate names another host.
        answer = httpx2.get(url, headers=headers, timeout=_TIMEOUT_S, verify=any_certificate(), trust_env=False)
    except httpx2.HTTPError:
        return None
    return answer.status_code, answer.content


def _display_name(deployment: str) -> str:
    kind, _, name = deployment.replace("--", "/").rpartition(":")
    match kind:
        case "batch":
            return f"{name} for batches"
        case "tool":
            return f"the {name.replace('_', ' ')}"
        case "" if name == "ingress":
            return "the HTTP service"
        case _:
            return name


def _problem_of(application: dict[str, Any]) -> str:
    messages = [application.get("message") or ""]
    for name, deployment in (application.get("deployments") or {}).items():
        if deployment.get("message"):
            messages.append(f"{_display_name(name)}: {deployment['message']}")
    return "\n".join(message for message in messages if message)
