"""Help is whole, is asked for in the usual ways, and says what happens by default."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from serve_app.cli import main


def groups(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if hasattr(command, "commands"):
        yield path
        for name, inner in command.commands.items():
            yield from groups(inner, (*path, name))


def helped(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("path", list(groups(typer.main.get_command(main))), ids=" ".join)
def test_the_list_of_commands_cuts_no_sentence(path: tuple[str, ...]) -> None:
    shown = helped(*path, "-h")
    assert "..." not in shown.partition("\n")[2]
    assert shown == helped(*path, "--help")


def test_each_command_takes_the_short_form_too() -> None:
    assert "Usage:" in helped("keys", "create", "-h")


def test_the_version_names_the_parts() -> None:
    assert re.fullmatch(r"manta \S+ \((vLLM \S+, )?Ray \S+, Python \S+\)\n", helped("--version"))


def test_the_tier_of_a_new_key_is_shown() -> None:
    assert "[default: free]" in " ".join(helped("keys", "create", "-h").split())


def test_a_rotated_key_keeps_its_old_secret_for_a_day_unless_told_otherwise() -> None:
    assert "[default: 24h]" in " ".join(helped("keys", "rotate", "-h").split())


def test_help_and_errors_have_no_words_of_python() -> None:
    for path in (("keys", "create"), ("front",), ("batch", "run"), ("config", "check"), ("serve",)):
        assert not re.search(r"list\[|<(str|int|float|path|file)>|range>", helped(*path, "-h")), path
    assert "Usage: manta config check [OPTIONS] {FILES}..." in helped("config", "check", "-h")
    assert "--operation TEXT" in helped("keys", "create", "-h")
    refused = CliRunner().invoke(main, ["usage", "--days", "x"])
    assert refused.exit_code == 2
    chosen = CliRunner().invoke(main, ["keys", "create", "--retention", "x"]).output
    assert "'--retention': 'x' is not one of 'strict', 'ephemeral', 'stored', 'logged'." in " ".join(chosen.split())
    assert "'--days': It should be a whole number, not \"x\"." in refused.output
