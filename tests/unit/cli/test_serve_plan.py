"""What `manta serve` makes of a configuration and an environment before it starts anything."""

import asyncio
import io
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import typer
import yaml
from rich.console import Console
from typer.testing import CliRunner

from deployments.channel.tls import TlsConfig
from deployments.proof import FrontTrust
from serve_app.cli import main
from serve_app.cli.supervise import front, serve, welcome
from serve_app.cli.supervise.front import Holder
from serve_app.cli.supervise.process_tree import ProcessTree, serving_environment
from serve_app.cli.supervise.serve import ServePlan, load_plan
from serve_app.front.settings import IngressTls, choose_run_dir

CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=1000)


@pytest.fixture(autouse=True)
def state_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def environment_of(environ: dict[str, str], plan: ServePlan) -> dict[str, str]:
    return serving_environment(environ, plan.state.state_dir, plan.config.models)


def test_plan_has_address_models_and_log(console: Console, state_dir: Path) -> None:
    plan = load_plan(CONFIGS / "local.yaml", console)
    assert plan.url == "http://127.0.0.1:8000"
    assert [model.id for model in plan.config.models] == ["manta/demo-chat", "all-minilm-l6-v2"]
    assert plan.log_path == state_dir / "logs" / "serve.log"


def test_address_is_one_to_call_when_every_interface_is_bound(console: Console, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text((CONFIGS / "local.yaml").read_text().replace("host: 127.0.0.1", "host: 0.0.0.0"))
    assert load_plan(path, console).url == "http://127.0.0.1:8000"


def test_field_is_named_when_the_configuration_is_wrong(console: Console, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text((CONFIGS / "local.yaml").read_text().replace("source: demo:trained", "sauce: demo:chat"))
    with pytest.raises(typer.Exit):
        load_plan(path, console)
    assert "sauce" in printed(console)


def test_file_is_named_when_there_is_no_configuration(console: Console, tmp_path: Path) -> None:
    with pytest.raises(typer.Exit):
        load_plan(tmp_path / "nothing.yaml", console)
    assert "nothing.yaml" in printed(console)


def test_fast_front_and_quiet_workers_are_asked_for(console: Console, state_dir: Path) -> None:
    environment = environment_of({"PATH": "/bin"}, load_plan(CONFIGS / "local.yaml", console))
    assert environment["RAY_SERVE_ENABLE_DIRECT_INGRESS"] == "1"
    assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert environment["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "1"
    assert environment["RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE"] == "1"
    assert environment["RAY_task_events_max_num_task_in_gcs"] == "5000"
    assert environment["RAY_AUTH_MODE"] == "token"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["MANTA_STATE_DIR"] == str(state_dir)
    assert environment["PATH"] == "/bin"


def test_front_has_the_port_and_serve_another_one(
    console: Console, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MANTA_FRONT_STATS_PORT", raising=False)
    plan = load_plan(CONFIGS / "local.yaml", console)
    settings = serve.front_settings(plan)
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert (settings.stats_host, settings.stats_port) == ("127.0.0.1", 8404)
    assert settings.run_dir == choose_run_dir(state_dir)
    assert settings.drain_s == plan.drain_s == 120.0
    assert settings.trust.request_key == FrontTrust.from_pepper(plan.state.pepper).request_key
    serve.write_serve_config(plan)
    written, given = (yaml.safe_load(path.read_text()) for path in (plan.serve_path, plan.path))
    assert written["http_options"] == {"host": "127.0.0.1", "port": plan.proxy_port}
    assert plan.proxy_port != 8000
    assert written["applications"] == given["applications"]


def test_the_front_alone_listens_where_others_reach_it(console: Console, tmp_path: Path) -> None:
    document = yaml.safe_load((CONFIGS / "local.yaml").read_text())
    document["http_options"] = {"host": "0.0.0.0", "port": 8000}
    path = tmp_path / "open.yaml"
    path.write_text(yaml.safe_dump(document))
    plan = load_plan(path, console)
    assert serve.front_settings(plan).host == "0.0.0.0"
    serve.write_serve_config(plan)
    assert yaml.safe_load(plan.serve_path.read_text())["http_options"]["host"] == "127.0.0.1"


def test_sockets_lie_elsewhere_than_in_a_folder_too_deep_for_them(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    run_dir = choose_run_dir(deep)
    assert len(str(run_dir)) < 60
    assert choose_run_dir(deep) == run_dir != choose_run_dir(deep / "y")


def test_operators_environment_has_the_last_word(console: Console) -> None:
    environ = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_ADDRESS": "10.0.0.1:6379"}
    environment = environment_of(environ, load_plan(CONFIGS / "local.yaml", console))
    assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
    assert "RAY_ADDRESS" not in environment


def test_hub_is_reachable_when_a_model_comes_from_it(console: Console) -> None:
    environment = environment_of({}, load_plan(CONFIGS / "gpu.yaml", console))
    assert "HF_HUB_OFFLINE" not in environment
    assert "OMP_NUM_THREADS" not in environment


def test_port_is_named_with_its_holder_when_it_is_taken(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "abandoned_processes", list)
    monkeypatch.setattr(serve, "is_free", lambda port: port != 8000)
    monkeypatch.setattr(front, "find_holder", lambda port, run_dir: Holder("nginx", 7))
    plan = load_plan(CONFIGS / "local.yaml", console)
    with pytest.raises(typer.Exit):
        serve._clear_the_way(plan, console)
    assert "Port 8000 is taken by nginx (process 7)" in printed(console)
    assert "make serve PORT=8001, manta serve --port 8001, or http_options.port" in printed(console)


@pytest.mark.parametrize("taken", [8404, 8405])
def test_the_variable_is_named_when_a_port_of_the_metrics_is_taken(
    console: Console, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    monkeypatch.setattr(serve, "abandoned_processes", list)
    monkeypatch.setattr(serve, "is_free", lambda port: port != taken)
    plan = load_plan(CONFIGS / "local.yaml", console)
    with pytest.raises(typer.Exit):
        serve._clear_the_way(plan, console)
    assert f"Port {taken} is taken" in printed(console)
    assert "MANTA_FRONT_STATS_PORT" in printed(console)


def test_a_service_that_runs_already_is_named(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "abandoned_processes", list)
    monkeypatch.setattr(serve, "is_free", lambda port: False)
    monkeypatch.setattr(front, "find_holder", lambda port, run_dir: Holder("haproxy", 7, is_own=True))
    with pytest.raises(typer.Exit):
        serve._clear_the_way(load_plan(CONFIGS / "local.yaml", console), console)
    assert "Port 8000 is taken by haproxy (process 7): Manta runs here already." in printed(console)
    assert "MANTA_STATE_DIR=.manta-2 MANTA_FRONT_STATS_PORT=8406 make serve PORT=8001" in printed(console)


def test_the_port_of_the_command_line_is_used_instead_of_the_file_s(console: Console, state_dir: Path) -> None:
    plan = load_plan(CONFIGS / "local.yaml", console, 8500)
    assert plan.url == "http://127.0.0.1:8500"
    assert serve.front_settings(plan).port == 8500
    assert plan.proxy_port != 8500


def test_make_passes_the_port_on() -> None:
    def printed_by(*words: str) -> str:
        command = ["make", "--dry-run", "--old-file=.venv/installed-cpu", "serve", *words]
        return subprocess.run(command, cwd=CONFIGS.parent, capture_output=True, text=True, check=True).stdout

    assert "manta serve configs/local.yaml --port 8001\n" in printed_by("PORT=8001")
    assert "manta serve configs/local.yaml\n" in printed_by("PORT=")


def test_a_file_that_asks_for_more_than_the_machine_has_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(serve, "_clear_the_way", lambda plan, console: pytest.fail("it went on"))
    path = tmp_path / "config.yaml"
    path.write_text((CONFIGS / "local.yaml").read_text().replace("CPU: 0.5", "CPU: 4096"))
    refused = CliRunner().invoke(main, ["serve", str(path)])
    assert refused.exit_code == 1
    assert "reserves more CPUs than" in refused.output


def test_first_key_is_issued_once(console: Console) -> None:
    state = load_plan(CONFIGS / "local.yaml", console).state
    secret = asyncio.run(welcome.open_state(state))
    assert secret is not None
    assert secret.startswith("sk-manta-")
    assert asyncio.run(welcome.open_state(state)) is None


def test_other_address_without_tls_takes_a_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text((CONFIGS / "local.yaml").read_text().replace("host: 127.0.0.1", "host: 0.0.0.0"))

    class Cleared(Exception):
        """The start went on."""

    def go_on(*arguments: object) -> None:
        raise Cleared

    monkeypatch.setattr(serve, "_clear_the_way", go_on)
    refused = CliRunner().invoke(main, ["serve", str(path)])
    assert refused.exit_code == 1
    assert "Others can reach 0.0.0.0, and without TLS" in refused.output
    for options in (["--plain-http"], ["--tls-certificate", "a", "--tls-key", "b"]):
        assert isinstance(CliRunner().invoke(main, ["serve", str(path), *options]).exception, Cleared)
    section = "  args:\n    http: {tls: {certificate: a, key: b}}\n"
    path.write_text(path.read_text().replace("  args:\n", section, 1))
    assert isinstance(CliRunner().invoke(main, ["serve", str(path)]).exception, Cleared)


def test_replicas_get_the_certificate_of_the_section_tls(console: Console, tmp_path: Path) -> None:
    plan = load_plan(CONFIGS / "local.yaml", console)
    tls = TlsConfig(certificate=tmp_path / "c", key=tmp_path / "k", authority=tmp_path / "a")
    plan = replace(plan, config=plan.config.model_copy(update={"tls": tls}))
    serve.write_serve_config(plan)
    written = yaml.safe_load(plan.serve_path.read_text())["http_options"]
    assert (written["ssl_certfile"], written["ssl_keyfile"]) == (str(tmp_path / "c"), str(tmp_path / "k"))
    assert serve.front_settings(plan).ingress_tls == IngressTls(str(tmp_path / "a"), "manta")


class NoFront(front.Front):
    """A front that has nothing to keep."""

    def __init__(self) -> None:
        pass

    def keep(self) -> None:
        pass


def started(command: str, plan: ServePlan, console: Console, timeout_s: float) -> int:
    """Run a command as the service of a plan; return the exit code of `manta serve`."""
    plan.log_path.parent.mkdir(parents=True, exist_ok=True)
    tree = ProcessTree(["sh", "-c", command], os.environ, plan.log_path)
    try:
        return serve._run(tree, NoFront(), plan, None, [], console, timeout_s)
    finally:
        tree.end()


def test_start_that_takes_too_long_is_given_up(console: Console) -> None:
    plan = load_plan(CONFIGS / "local.yaml", console)
    assert started("sleep 60", plan, console, 0.0) == 1
    assert "Starting takes about a minute, and more on a slow or busy machine." in printed(console)
    assert f"Not ready after 0 seconds. Log: {plan.log_path}" in printed(console)


def test_end_of_a_service_that_was_starting_is_told_with_its_last_lines(
    console: Console, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load_plan(CONFIGS / "local.yaml", console)
    assert started("for line in $(seq 100); do echo line $line; done; exit 3", plan, console, 60.0) == 1
    assert f"The service has ended. The last lines of {plan.log_path}:" in printed(console)
    assert capsys.readouterr().err.splitlines() == [f"line {number}" for number in range(61, 101)]
