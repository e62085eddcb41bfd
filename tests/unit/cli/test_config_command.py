"""`manta config`: what is printed, in what form, and with what status."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli import main

LOCAL = Path(__file__).parents[3] / "configs" / "local.yaml"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["config", *arguments])
    return result.exit_code, result.output


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.yaml"
    path.write_text(LOCAL.read_text().replace("aliases: [demo-chat]", "alaises: [demo-chat]"))
    return path


def test_files_are_counted_in_words() -> None:
    assert run("check", str(LOCAL)) == (0, "1 file can be deployed\n")
    assert run("check", str(LOCAL), str(LOCAL)) == (0, "2 files can be deployed\n")


def test_a_fault_is_one_line_with_its_place_and_the_name_that_was_meant(wrong: Path) -> None:
    line = LOCAL.read_text().splitlines().index("      aliases: [demo-chat]") + 1
    status, printed = run("check", str(wrong))
    assert status == 1
    assert printed == (
        f'{wrong}:{line}: models[0] (manta/demo-chat): unknown setting "alaises". Did you mean "aliases"?\n'
    )


def test_programs_get_each_part_of_a_fault(wrong: Path) -> None:
    status, printed = run("check", "--json", str(wrong))
    (fault,) = json.loads(printed)
    assert status == 1
    assert (fault["state"], fault["file"]) == ("fault", str(wrong))
    assert fault["setting"] == "models[0] (manta/demo-chat)"
    assert wrong.read_text().splitlines()[fault["line"] - 1].strip().startswith("alaises")
    assert run("check", "--json", str(LOCAL)) == (0, "[]\n")


def test_a_file_for_other_machines_may_name_paths_that_are_not_here(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.yaml"
    path.write_text(LOCAL.read_text().replace("source: demo:trained", "source: /models/of-the-cluster"))
    status, printed = run("check", str(path))
    assert status == 1
    assert "there is no /models/of-the-cluster on this machine" in printed
    assert run("check", "--elsewhere", str(path)) == (0, "1 file can be deployed\n")


def test_the_schema_is_printed_or_written(tmp_path: Path) -> None:
    status, printed = run("schema")
    assert status == 0
    assert run("schema", "-o", str(tmp_path / "schema.json")) == (0, "")
    assert (tmp_path / "schema.json").read_text() == printed
    assert run("schema", "-o", str(tmp_path / "none" / "schema.json"))[0] == 1


def test_a_warning_is_counted_and_does_not_refuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "hub.yaml"
    path.write_text(LOCAL.read_text().replace("source: demo:trained", "source: nobody/has-this"))
    status, printed = run("check", str(path))
    assert status == 0
    assert "hf download nobody/has-this" in printed
    assert printed.endswith("1 file can be deployed, with 1 warning\n")
