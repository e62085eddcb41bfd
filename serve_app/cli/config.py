"""`manta config`: checks configuration files, and shows their schema."""

import json
from pathlib import Path
from typing import Annotated

import typer

from serve_app.config import ServiceConfig, check_file

app = typer.Typer(help="Look at configuration files.", no_args_is_help=True)


@app.command()
def check(files: Annotated[list[Path], typer.Argument(help="Serve configuration files.")]) -> None:
    """Print what keeps files from being deployed, one line a fault; exits with 1 if there is one."""
    faults = [fault for path in files for fault in check_file(path)]
    typer.echo("\n".join(faults) or f"{len(files)} files can be deployed")
    raise typer.Exit(1 if faults else 0)


@app.command()
def schema() -> None:
    """Print the JSON schema of the application's `args`."""
    typer.echo(json.dumps(ServiceConfig.model_json_schema(), indent=2))
