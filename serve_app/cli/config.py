"""`manta config`: checks configuration files, and prints the schema with which editors complete them."""

import json
from pathlib import Path
from typing import Annotated

import typer

from serve_app.checks.check import check_file
from serve_app.checks.rules import ALL, OF_THE_FILE
from serve_app.checks.schema import file_schema
from serve_app.cli.output import Commands, JsonOption, counted, print_json

app = typer.Typer(cls=Commands, help="Check configuration files, or print their schema.", no_args_is_help=True)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Serve configuration files.")],
    elsewhere: Annotated[
        bool,
        typer.Option(
            "--elsewhere", help="The files are for other machines: look for no paths and packages on this one."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check whether files can be deployed; print a line for each fault, and exit with 1 if there is one."""
    findings = [finding for path in files for finding in check_file(path, OF_THE_FILE if elsewhere else ALL)]
    num_faults = sum(finding.state == "fault" for finding in findings)
    if as_json:
        print_json(findings)
    else:
        for finding in findings:
            typer.echo(finding.text if finding.state == "fault" else f"{finding.text} (a warning)")
        if not num_faults:
            warnings = f", with {counted(len(findings), 'warning')}" if findings else ""
            typer.echo(f"{counted(len(files), 'file')} can be deployed{warnings}")
    raise typer.Exit(1 if num_faults else 0)


@app.command()
def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file instead.")] = None,
) -> None:
    """Print the JSON schema of a configuration file, for editors that complete its names."""
    text = json.dumps(file_schema(), indent=2)
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        typer.echo(f"Error: {output} cannot be written: {error.strerror}.", err=True)
        raise typer.Exit(1) from None
