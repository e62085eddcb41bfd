"""`manta models`: the models of a configuration, and Codex's catalogue of them."""

import json
from pathlib import Path

from typer.testing import CliRunner

from serve_app.cli import main

CONFIGS = Path(__file__).parents[3] / "configs"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["models", *arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_models_are_listed_with_what_they_can() -> None:
    status, printed = run(str(CONFIGS / "local.yaml"))
    assert status == 0
    assert "manta/demo-chat" in printed
    status, printed = run(str(CONFIGS / "local.yaml"), "--json")
    chat = json.loads(printed)[0]
    assert (chat["id"], chat["aliases"], chat["can"]) == ("manta/demo-chat", ["demo-chat"], ["tools", "reasoning"])


def test_codex_gets_the_catalogue_that_the_service_answers_with() -> None:
    status, printed = run(str(CONFIGS / "local.yaml"), "--codex")
    assert status == 0
    assert [model["slug"] for model in json.loads(printed)["models"]] == ["manta/demo-chat"]


def test_a_file_that_cannot_be_deployed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("applications: 1\n")
    assert run(str(tmp_path / "wrong.yaml"))[0] == 1
    assert run(str(tmp_path / "none.yaml"))[0] == 1
