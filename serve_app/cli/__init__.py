"""The operator's command line, `manta`. Each module has functions that a test can call."""

import typer

from serve_app.cli import batch, database, doctor, front, keys, regions, usage
from serve_app.cli.supervise import serve

main = typer.Typer(
    name="manta",
    help="Serve models with OpenAI's interface, and look after keys, usage and batches.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
main.command("serve")(serve.serve)
main.command("front")(front.front)
main.command("doctor")(doctor.doctor)
main.add_typer(doctor.app, name="config")
main.add_typer(keys.app, name="keys")
main.add_typer(batch.app, name="batch")
main.add_typer(regions.app, name="regions")
main.command("adopt-object-store")(database.adopt_object_store)
main.command("usage")(usage.show_usage)
main.command("requests")(usage.show_requests)
