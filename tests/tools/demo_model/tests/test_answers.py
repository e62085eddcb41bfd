"""What the model says about Manta is so: the pages, commands and options that it names are there."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli import main
from tests.tools.demo_model import manta

ROOT = Path(__file__).parents[4]
ANSWERS = sorted(
    {answer for known in (manta.THINGS_OF_MANTA, manta.DOINGS_WITH_MANTA, manta.TROUBLES, manta.QUESTIONS)
     for _, answer in known}
)  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_an_answer_names_is_there(answer: str) -> None:
    for path in re.findall(r"\b(?:docs|configs)/[\w/.-]+\w|CONTRIBUTING\.md", answer):
        assert (ROOT / path).exists()
    for target in re.findall(r"\bmake ([a-z][a-z-]+)", answer):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command, options in re.findall(r": manta ((?:[a-z]+\b ?)+)(.*)", answer):
        shown = CliRunner().invoke(main, [*command.split(), "--help"])
        assert shown.exit_code == 0, command
        assert all(option in shown.output for option in re.findall(r"--[a-z-]+", options))
