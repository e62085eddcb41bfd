"""The doctor names what is wrong, says nothing against a machine that is fine, and changes nothing."""

import asyncio
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from deployments.state.config import resolve_state
from deployments.state.database.connection import connect
from deployments.state.objects.marker import open_objects
from serve_app.checks.check import Finding, read_file
from serve_app.cli import doctor
from serve_app.cli.supervise import front, machine
from serve_app.cli.supervise.front import Holder

LOCAL = Path(__file__).parents[3] / "configs" / "local.yaml"
BUNDLES = "{bundles: [{CPU: 0.5}]}"


@pytest.fixture(autouse=True)
def healthy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(doctor, "is_free", lambda port: True)
    monkeypatch.setattr(doctor, "abandoned_processes", list)
    monkeypatch.setattr(machine.psutil, "cpu_count", lambda: 2)
    monkeypatch.setattr(doctor, "code_interpreter_problem", lambda tools: None)


def texts_of(path: Path, state: str = "fault") -> list[str]:
    return [finding.text for finding in doctor.examine(path) if finding.state == state]


def changed(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = LOCAL.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after, 1)
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return path


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def started_once() -> None:
    """Make the state that a first start makes."""
    state = resolve_state(read_file(LOCAL)[1].state)

    async def start() -> None:
        database = await connect(state.database_url)
        await open_objects(database, state.object_store)
        await database.close()

    asyncio.run(start())


def test_no_fault_is_found_before_the_first_start_and_nothing_is_created(tmp_path: Path) -> None:
    findings = list(doctor.examine(LOCAL))
    assert [finding for finding in findings if finding.state == "fault"] == []
    assert Finding("ok", "There is no database yet: the first start creates it") in findings
    assert Finding("ok", "The models fit on this machine") in findings
    assert any("GiB of disk are free for the state in" in finding.text for finding in findings)
    assert list(tmp_path.iterdir()) == []


def test_the_state_of_a_service_is_read_and_stays_as_it_is(tmp_path: Path) -> None:
    started_once()
    before = listing(tmp_path)
    findings = list(doctor.examine(LOCAL))
    assert Finding("ok", "The database answers, and its tables are up to date") in findings
    assert Finding("ok", "The object store answers, and belongs to the database") in findings
    assert listing(tmp_path) == before


def test_the_state_of_a_service_that_runs_is_read_and_gets_no_file(tmp_path: Path) -> None:
    state = resolve_state(read_file(LOCAL)[1].state)

    async def beside() -> list[Finding]:
        database = await connect(state.database_url)
        await open_objects(database, state.object_store)
        before = set(listing(tmp_path))
        findings = await asyncio.to_thread(lambda: list(doctor.examine(LOCAL)))
        assert set(listing(tmp_path)) == before
        await database.close()
        return findings

    assert Finding("ok", "The database answers, and its tables are up to date") in asyncio.run(beside())


def test_field_is_named_when_the_configuration_is_wrong(tmp_path: Path) -> None:
    path = changed(tmp_path, ("tool_parser: hermes", "tool_parsre: hermes"))
    assert any("tool_parsre" in fault for fault in texts_of(path))


def test_holder_is_named_when_a_port_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_free", lambda port: port not in (8000, 8404))
    for module in (doctor, front):
        monkeypatch.setattr(module, "find_holder", lambda port, run_dir: Holder("nginx", 7))
    clients, metrics = texts_of(LOCAL)
    assert clients.startswith("Port 8000 is taken by nginx (process 7). Stop that process, or choose another port")
    assert metrics.startswith("Port 8404 is taken by nginx (process 7)")
    assert "MANTA_FRONT_STATS_PORT" in metrics


def test_a_service_that_runs_here_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_free", lambda port: False)
    monkeypatch.setattr(doctor, "find_holder", lambda port, run_dir: Holder("haproxy", 7, is_own=True))
    assert texts_of(LOCAL) == []
    assert "Manta runs here already, on port 8000, 8404, 8405" in texts_of(LOCAL, "ok")


def test_our_own_front_is_known_by_the_folder_of_its_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def name(self) -> str:
            return "haproxy"

        def cmdline(self) -> list[str]:
            return ["haproxy", "-db", "-f", str(tmp_path / "front" / "haproxy-0.cfg")]

    def connections(kind: str) -> list[object]:
        return [SimpleNamespace(laddr=SimpleNamespace(port=8000), status=psutil.CONN_LISTEN, pid=7)]

    monkeypatch.setattr(front.psutil, "Process", Process)
    monkeypatch.setattr(front.psutil, "net_connections", connections)
    assert front.find_holder(8000, tmp_path / "front") == Holder("haproxy", 7, is_own=True)
    assert front.find_holder(8000, tmp_path / "other") == Holder("haproxy", 7)
    assert front.find_holder(8001, tmp_path / "front") is None


def test_missing_packages_are_named_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpu.txt").write_text("# a comment\nno-such-package==1.0 \\\n    --hash=sha256:0==\npytest==0.1\n")
    monkeypatch.setattr(doctor, "_LOCKS", tmp_path)
    install = f"Run: make install CONFIG={LOCAL}"
    assert texts_of(LOCAL) == [f"Packages of the cpu profile are not installed: no-such-package. {install}"]
    (warning,) = [text for text in texts_of(LOCAL, "warning") if "pytest" in text]
    assert warning.endswith(install)


def test_many_missing_packages_are_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpu.txt").write_text("".join(f"no-such-{number}==1.0\n" for number in range(70)))
    monkeypatch.setattr(doctor, "_LOCKS", tmp_path)
    (fault,) = texts_of(LOCAL)
    assert fault.startswith("Packages of the cpu profile are not installed, 70 of 70. Run: make install")


def test_missing_driver_is_a_fault_when_models_are_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "count_gpus", lambda: 0)
    monkeypatch.setattr(doctor, "find_on_hub", lambda hub_id: None)
    assert any("no NVIDIA driver" in fault for fault in texts_of(LOCAL.with_name("gpu.yaml")))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([(BUNDLES, "{bundles: [{CPU: 64}]}")], ["more CPUs than the 2", "manta/demo-chat 64"]),
        (
            [(BUNDLES, "{bundles: [{CPU: 1.5}]}")],
            ["more CPUs than the 2", "all-minilm-l6-v2 0.5", "the other parts 0.2"],
        ),
        ([("min_replicas: 1, max_replicas: 1", "min_replicas: 4, max_replicas: 4")], ["manta/demo-chat 2"]),
        ([(BUNDLES, "{bundles: [{CPU: 0.5, GPU: 1}]}")], ["more GPUs than the 0"]),
        ([('SPACE: "1"', 'SPACE: "512000"')], ["KV caches", "VLLM_CPU_KVCACHE_SPACE"]),
    ],
)
def test_what_this_machine_does_not_have_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: list[tuple[str, str]], words: list[str]
) -> None:
    monkeypatch.setattr(machine, "count_gpus", lambda: 0)
    (fault,) = texts_of(changed(tmp_path, *changes))
    for word in words:
        assert word in fault


def test_unreachable_database_is_a_fault(tmp_path: Path) -> None:
    path = changed(tmp_path, ("  args:\n", "  args:\n    state: {database_url: {env: NO_SUCH_VARIABLE}}\n"))
    assert any("NO_SUCH_VARIABLE" in fault for fault in texts_of(path))


def test_tables_of_another_version_are_a_fault(tmp_path: Path) -> None:
    started_once()
    with sqlite3.connect(tmp_path / "state" / "manta.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9999_later'")
    connection.close()
    (fault,) = texts_of(LOCAL)
    assert "a version that this one does not know" in fault


def test_a_host_that_cannot_build_sandboxes_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "code_interpreter_problem", machine.code_interpreter_problem)
    monkeypatch.setenv("PATH", "/nowhere")
    found = [text for text in texts_of(LOCAL, "warning") if "Code interpreter" in text]
    assert found == ["Code interpreter: off, bubblewrap is not installed: apt-get install bubblewrap"]


def test_a_key_of_the_web_search_that_is_nowhere_is_a_fault(tmp_path: Path) -> None:
    search = "      web_search: {provider: {name: brave, api_key: {env: NO_SUCH_VARIABLE}}}\n"
    path = changed(tmp_path, ("    tools:\n", "    tools:\n" + search))
    assert any("NO_SUCH_VARIABLE" in fault for fault in texts_of(path))


def test_object_store_of_another_database_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "state" / "objects").mkdir(parents=True)
    (tmp_path / "state" / "objects" / "manta-marker").write_text("another")
    (fault,) = texts_of(LOCAL)
    assert "belongs to another database" in fault
    assert "manta adopt-object-store" in fault


def test_objects_that_are_gone_are_a_fault(tmp_path: Path) -> None:
    started_once()
    (tmp_path / "state" / "objects").rename(tmp_path / "elsewhere")
    (fault,) = texts_of(LOCAL)
    assert "is empty, or not the same as before" in fault
    assert not (tmp_path / "state" / "objects").exists()


@pytest.mark.parametrize(
    ("swaps", "num_warnings"),
    [
        ("", 0),
        ("/dev/zram0 partition 1048572 0 100\n", 0),
        ("/dev/zram0 partition 1048572 0 100\n/swapfile file 1048572 0 -2\n", 1),
    ],
)
def test_swap_beside_containers_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, swaps: str, num_warnings: int
) -> None:
    path = tmp_path / "swaps"
    path.write_text("Filename Type Size Used Priority\n" + swaps)
    monkeypatch.setattr(doctor, "_SWAPS", path)
    found = [finding for finding in doctor.examine(LOCAL) if "swapoff" in finding.text]
    assert [finding.state for finding in found] == ["warning"] * num_warnings


@pytest.mark.parametrize(
    ("cached", "problem", "state"),
    [(True, "unused", "ok"), (False, None, "ok"), (False, "the hub has no such", "warning")],
)
def test_models_of_the_hub_are_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cached: bool, problem: str | None, state: str
) -> None:
    monkeypatch.setattr(doctor, "is_cached", lambda hub_id: cached)
    monkeypatch.setattr(doctor, "find_on_hub", lambda hub_id: problem)
    path = changed(tmp_path, ("demo:trained", "Qwen/Qwen3-8B"), ('        HF_HUB_OFFLINE: "1"\n', ""))
    found = [one for one in doctor.examine(path) if "Qwen" in one.text or "no such" in one.text]
    assert [one.state for one in found] == [state]
