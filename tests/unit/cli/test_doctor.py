"""The doctor names what is wrong, and says nothing against a machine that is fine."""

from pathlib import Path

import pytest

from serve_app.cli import doctor
from serve_app.cli.doctor import Finding

LOCAL = Path(__file__).parents[3] / "configs" / "local.yaml"


@pytest.fixture(autouse=True)
def healthy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MANTA_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(doctor, "is_free", lambda port: True)
    monkeypatch.setattr(doctor, "abandoned_processes", list)
    monkeypatch.setattr(doctor, "_resources", lambda: iter(()))


def faults_of(path: Path) -> list[str]:
    return [finding.text for finding in doctor.examine(path) if finding.state == "fault"]


def test_no_fault_is_found_when_all_is_well() -> None:
    findings = list(doctor.examine(LOCAL))
    assert [finding for finding in findings if finding.state == "fault"] == []
    assert Finding("ok", "The database answers, and its tables are up to date") in findings
    assert Finding("ok", "The object store answers, and belongs to the database") in findings


def test_field_is_named_when_the_configuration_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(LOCAL.read_text().replace("tool_parser: hermes", "tool_parsre: hermes"))
    assert any("tool_parsre" in fault for fault in faults_of(path))


def test_holder_is_named_when_a_port_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "is_free", lambda port: port != 8000)
    monkeypatch.setattr(doctor, "describe_holder", lambda port: " by nginx (process 7)")
    assert faults_of(LOCAL) == ["Port 8000 is taken by nginx (process 7)"]


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpu.txt").write_text("# a comment\nno-such-package==1.0\npytest==0.1\n")
    monkeypatch.setattr(doctor, "_LOCKS", tmp_path)
    findings = list(doctor.examine(LOCAL))
    assert Finding("fault", "Packages of the cpu profile that are not installed: no-such-package") in findings
    assert any(finding.state == "warning" and "pytest" in finding.text for finding in findings)


def test_missing_driver_is_a_fault_when_models_are_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert any("no NVIDIA driver" in fault for fault in faults_of(LOCAL.with_name("gpu.yaml")))


def test_unreachable_database_is_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    url = "state: {database_url: {env: NO_SUCH_VARIABLE}}"
    path.write_text(LOCAL.read_text().replace("  args:\n", f"  args:\n    {url}\n"))
    assert any("NO_SUCH_VARIABLE" in fault for fault in faults_of(path))


def test_a_host_that_cannot_build_sandboxes_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    findings = [finding for finding in doctor.examine(LOCAL) if "code interpreter" in finding.text]
    assert [finding.state for finding in findings] == ["warning"]
    assert "apt-get install bubblewrap" in findings[0].text


def test_a_key_of_the_web_search_that_is_nowhere_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    search = "      web_search: {provider: {name: brave, api_key: {env: NO_SUCH_VARIABLE}}}\n"
    path.write_text(LOCAL.read_text().replace("    tools:\n", "    tools:\n" + search))
    assert any("NO_SUCH_VARIABLE" in fault for fault in faults_of(path))


def test_object_store_of_another_database_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "manta-marker").write_text("another")
    (fault,) = faults_of(LOCAL)
    assert "belongs to another database" in fault
    assert "manta adopt-object-store" in fault


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
