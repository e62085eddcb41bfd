"""A starting service is looked at through Serve's own account of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from serve_app.cli.supervise import readiness
from serve_app.cli.supervise.readiness import Progress, ReadinessProbe

DASHBOARD = "http://127.0.0.1:8265"


class Answers:
    """Stands in for HTTP: an answer for each URL, and the headers that were sent."""

    def __init__(self, application: dict[str, Any] | None, ready: int = 200) -> None:
        self.application = application
        self.ready = ready
        self.headers: list[dict[str, str]] = []

    def __call__(self, url: str, headers: dict[str, str] | None = None) -> tuple[int, bytes] | None:
        self.headers.append(headers or {})
        if url == "http://127.0.0.1:8000/readyz":
            return self.ready, b""
        assert url == f"{DASHBOARD}/api/serve/applications/"
        applications = {} if self.application is None else {"manta": self.application}
        return 200, json.dumps({"applications": applications}).encode()


@pytest.fixture
def probe() -> ReadinessProbe:
    output = b"... View the dashboard at \x1b[1m\x1b[32mhttp://127.0.0.1:8265 \x1b[39m\x1b[22m\n"
    return ReadinessProbe("http://127.0.0.1:8000", lambda: output)


def look(probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch, answers: Answers) -> Progress:
    monkeypatch.setattr(readiness, "_get", answers)
    return probe.look()


def test_ray_is_waited_for_when_it_has_not_said_where_it_is() -> None:
    probe = ReadinessProbe("http://127.0.0.1:8000", lambda: b"Running config file\n")
    assert probe.look() == Progress("starting", ("Ray, which runs the parts of the service",))


def test_service_is_starting_when_there_is_no_application(
    probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert look(probe, monkeypatch, Answers(None)).phase == "starting"


def test_models_that_are_not_up_are_named(probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments = {
        "ingress": {"status": "HEALTHY"},
        "model:manta--demo-chat": {"status": "UPDATING"},
        "batch:manta--demo-chat": {"status": "UPDATING"},
        "model:all-minilm-l6-v2": {"status": "HEALTHY"},
    }
    answers = Answers({"status": "DEPLOYING", "deployments": deployments})
    assert look(probe, monkeypatch, answers) == Progress("starting", ("manta/demo-chat", "manta/demo-chat for batches"))


def test_other_parts_are_named_in_words(probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments = {name: {"status": "UPDATING"} for name in ("tool:code_interpreter", "ingress")}
    answers = Answers({"status": "DEPLOYING", "deployments": deployments})
    assert look(probe, monkeypatch, answers).waiting_for == ("the code interpreter", "the HTTP service")


def test_front_is_waited_for_when_only_the_models_are_up(
    probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = {"status": "RUNNING", "deployments": {"ingress": {"status": "HEALTHY"}}}
    assert look(probe, monkeypatch, Answers(application, ready=503)).phase == "starting"
    assert look(probe, monkeypatch, Answers(application, ready=200)) == Progress("ready")


def test_failure_says_what_serve_says(probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch) -> None:
    deployments = {"model:manta--demo-chat": {"status": "DEPLOY_FAILED", "message": "No such file"}}
    answers = Answers({"status": "DEPLOY_FAILED", "message": "It failed.", "deployments": deployments})
    progress = look(probe, monkeypatch, answers)
    assert progress.phase == "failed"
    assert progress.problem == "It failed.\nmanta/demo-chat: No such file"


def test_dashboard_is_asked_with_rays_token(
    probe: ReadinessProbe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("from a file\n")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    answers = Answers(None)
    look(probe, monkeypatch, answers)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "from the environment")
    probe.look()
    assert [headers["Authorization"] for headers in answers.headers] == [
        "Bearer from a file",
        "Bearer from the environment",
    ]
