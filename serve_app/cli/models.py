"""`manta models`: the models of a configuration, as a table or for programs."""

from pathlib import Path
from typing import Annotated

import typer

from deployments.config import ConfigError
from serve_app.checks.check import read_file
from serve_app.checks.rules import OF_THE_FILE
from serve_app.cli.database import fail
from serve_app.cli.output import JsonOption, print_json, print_table
from serve_app.schemas.codex import codex_catalogue

_COLUMNS = ("id", "task", "context", "aliases", "can")


def show_models(
    config: Annotated[Path, typer.Argument(help="The Serve configuration file.")] = Path("configs/local.yaml"),
    codex: Annotated[
        bool, typer.Option("--codex", help="Print the file that Codex's setting model_catalog_json names.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the models of a configuration: context, aliases, and whether they call tools, reason and see images."""
    try:
        _, service = read_file(config, OF_THE_FILE)
    except ConfigError as error:
        fail(str(error))
    if codex:
        print_json(codex_catalogue(model.card for model in service.models))
        return
    rows = [
        {
            "id": model.id,
            "task": model.task,
            "context": model.card.max_model_len,
            "aliases": list(model.aliases),
            "can": [name for name, has in model.card.abilities.items() if has],
        }
        for model in service.models
    ]
    if as_json:
        print_json(rows)
        return
    shown = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in rows]
    print_table(_COLUMNS, shown, numeric=("context",))
