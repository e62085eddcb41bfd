"""The reference page of the command line, from the commands of `manta`."""

import inspect
from typing import Any

import typer.main

from serve_app.cli import main as command_line
from serve_app.cli.variables import VARIABLES
from tests.tools.pages.tables import cell, plain


def render_commands() -> str:
    parts = ["# Command line\n", "`.venv/bin/manta` after `make install`. Every command has `--help`.\n"]
    pending: list[tuple[str, Any]] = [("manta", typer.main.get_command(command_line))]
    while pending:
        name, command = pending.pop(0)
        children = getattr(command, "commands", {})
        if children:
            pending[:0] = [(f"{name} {child}", inner) for child, inner in children.items()]
            continue
        parts += [f"## `{name}`\n", f"{inspect.cleandoc(command.help or '')}\n"]
        rows = [_option_row(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            parts += ["| argument or option | default | meaning |", "|---|---|---|", *rows, ""]
    parts += [
        "## Environment variables\n",
        "A configuration can name more of them, as `{env: NAME}`; see [Configure](../operate/configure.md#secrets).\n",
        "| variable | meaning |",
        "|---|---|",
        *(f"| `{name}` | {cell(meaning)} |" for name, meaning in VARIABLES.items()),
    ]
    return "\n".join(parts)


def _option_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = parameter.name.upper() if is_argument else ", ".join(parameter.opts)
    default = parameter.default
    shown = f"`{plain(default)}`" if default not in (None, "", False) else "off" if default is False else "none"
    if parameter.required:
        shown = "required"
    variables = parameter.envvar if isinstance(parameter.envvar, list) else [parameter.envvar]
    listed = " or ".join(f"`${variable}`" for variable in variables if variable)
    meaning = " ".join(filter(None, [parameter.help or "", listed and f"Read from {listed} if it is not given."]))
    choices = getattr(getattr(parameter, "type", None), "choices", None)
    if choices:
        values = [f"`{getattr(choice, 'value', choice)}`" for choice in choices]
        meaning += f" One of {', '.join(values)}."
    return f"| `{names}` | {shown} | {cell(meaning)} |"
