"""`manta batch`: runs files of requests as batches, with OpenAI's client over HTTP.

Stopping a command leaves its batch running, and prints how to continue.
"""

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from deployments.operations import MODEL_OPERATIONS, Operation
from serve_app.cli.database import fail
from serve_app.cli.output import Commands, JsonOption, StopMessage, explain_stop, print_json, print_table, render_time

ENDED = ("completed", "failed", "expired", "cancelled")
_FIRST_POLL_S, _MAX_POLL_S = 0.25, 2.0
_RATE_OVER_S = 10.0
app = typer.Typer(cls=Commands, help="Run files of requests as batches.", no_args_is_help=True)

_UNCERTAIN = (
    "It is not known whether the batch was created; `manta batch list` shows it if it was. If it was not, the uploaded "
    "file expires by itself."
)

UrlOption = Annotated[
    str, typer.Option("--url", envvar=["MANTA_URL", "OPENAI_BASE_URL"], help="The service's address, including /v1.")
]
KeyOption = Annotated[
    str | None, typer.Option("--key", envvar=["MANTA_API_KEY", "OPENAI_API_KEY"], help="An API key.", show_envvar=True)
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The file for the answers; by default next to the requests, or named after the id."
    ),
]
BatchId = Annotated[str, typer.Argument(help="The batch's id, batch_...", show_default=False)]
DEFAULT_URL = "http://127.0.0.1:8000/v1"


@app.command("run")
def run_batch(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(help="The requests, one JSON object per line.", exists=True, dir_okay=False)
    ],
    output: OutputOption = None,
    endpoint: Annotated[str | None, typer.Option(help="The endpoint; by default that of the first line.")] = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Upload requests, wait for their answers and download them. Ctrl-C leaves the batch running."""
    target = output or source.with_suffix(".output.jsonl")
    with explain_stop("No batch was created: the upload was not finished.") as stop, _client(url, key) as client:
        with source.open("rb") as requests:
            file = client.files.create(file=(source.with_suffix(".jsonl").name, requests), purpose="batch")
        typer.echo(f"{file.bytes:,} bytes uploaded", err=as_json)
        stop.message = _UNCERTAIN
        batch = _create(client, file.id, endpoint or _endpoint_of(source))
        _finish(client, batch, target, _repeated_options(context, url), stop, as_json=as_json)


@app.command("wait")
def wait_for_batch(
    context: typer.Context,
    batch_id: BatchId,
    output: OutputOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Wait for a batch and download its answers. Ctrl-C leaves it running."""
    target = output or Path(f"{batch_id}.output.jsonl")
    with explain_stop(f"Nothing was changed at {batch_id}.") as stop, _client(url, key) as client:
        options = _repeated_options(context, url)
        _finish(client, client.batches.retrieve(batch_id), target, options, stop, as_json=as_json)


@app.command("list")
def list_batches(
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many, newest first.")] = 20,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """List batches, newest first."""
    with _client(url, key) as client:
        batches = client.batches.list(limit=limit).data
    if as_json:
        print_json([batch.model_dump() for batch in batches])
        return
    rows = [
        (
            batch.id,
            batch.status,
            batch.endpoint,
            batch.request_counts.total,
            batch.request_counts.completed,
            batch.request_counts.failed,
            render_time(batch.created_at),
        )
        for batch in batches
    ]
    columns = ("id", "status", "endpoint", "requests", "completed", "failed", "created")
    print_table(
        columns,
        rows,
        numeric=("requests", "completed", "failed"),
        optional=("completed", "endpoint", "failed", "created"),
        empty="There are no batches of this account. Start one with: manta batch run FILE",
    )


@app.command("show")
def show_batch(
    batch_id: BatchId, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, key: KeyOption = None
) -> None:
    """Show one batch."""
    with _client(url, key) as client:
        _print(client.batches.retrieve(batch_id), as_json=as_json)


@app.command("cancel")
def cancel_batch(
    batch_id: BatchId, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL, key: KeyOption = None
) -> None:
    """Cancel a batch; the answers so far are kept."""
    with _client(url, key) as client:
        _print(client.batches.cancel(batch_id), as_json=as_json)


@contextmanager
def _client(url: str, key: str | None) -> Iterator[Any]:
    """Yield OpenAI's client. If the service refuses a request, its message ends the command."""
    from openai import APIConnectionError, APIStatusError, OpenAI  # Half a second to import.

    if not key:
        fail("Give an API key with --key, or in MANTA_API_KEY or OPENAI_API_KEY.")
    url = complete_url(url)
    try:
        with OpenAI(base_url=url, api_key=key) as client:
            yield client
    except APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        fail(str(body.get("message") or error.message))
    except APIConnectionError:
        fail(f"The service at {url} cannot be reached.")


def _create(client: Any, file_id: str, endpoint: str) -> Any:
    """Create a batch; if the service refuses it, delete its input file."""
    from openai import APIError, APIStatusError

    try:
        return client.batches.create(input_file_id=file_id, endpoint=endpoint, completion_window="24h")
    except APIStatusError:
        with suppress(APIError):  # The service refuses to delete a file that a batch needs.
            client.files.delete(file_id)
        raise


def complete_url(url: str) -> str:
    """Return the base URL of the API: one without a path gets /v1."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        fail(f"{url!r} is not the address of a service, such as {DEFAULT_URL}.")
    return f"{url.rstrip('/')}/v1" if parts.path in ("", "/") else url


def _finish(client: Any, batch: Any, target: Path, options: str, stop: StopMessage, *, as_json: bool) -> None:
    """Wait for a batch and download its answers; exit with 1 if the batch or any of its requests failed."""
    again = f"manta batch wait {batch.id} -o {shlex.quote(str(target))}{options}"
    stop.message = "\n".join(
        [
            f"{batch.id} keeps running.",
            f"  see its progress:   manta batch show {batch.id}{options}",
            f"  wait for it again:  {again}",
            f"  cancel it:          manta batch cancel {batch.id}{options}",
        ]
    )
    typer.echo(f"{batch.id}: {batch.status}", err=as_json)
    batch = follow(client, batch)
    if batch.output_file_id is not None:
        stop.message = f"{batch.id} has ended; download its answers with\n  {again}"
        try:
            _download(client, batch.output_file_id, target)
        except OSError as error:
            fail(f"{target} cannot be written: {error.strerror}. Download the answers to another place with\n  {again}")
        typer.echo(f"{batch.status}: {_counts(batch)}; the answers are in {target}", err=as_json)
        if batch.request_counts.failed and target.is_file() and (failure := _first_failure(target)) is not None:
            typer.echo(failure, err=as_json)
    if as_json:
        print_json({**batch.model_dump(), "output": str(target) if batch.output_file_id is not None else None})
    if batch.status == "failed":
        what = "The batch has failed." if batch.request_counts.total else "The batch is not valid."
        fail("\n".join([what, *_errors(batch)]))
    if batch.status != "completed" or batch.request_counts.failed:
        raise typer.Exit(1)


def _download(client: Any, file_id: str, target: Path) -> None:
    """Write the content of a file to `target`, which appears only when complete."""
    content = client.files.content(file_id)
    if target.exists() and not target.is_file():  # A pipe or a terminal.
        content.write_to_file(target)
        return
    part = target.with_name(f"{target.name}.part")
    try:
        content.write_to_file(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _first_failure(output: Path) -> str | None:
    """Return a sentence on the first answer in an output file that is an error, None without one."""
    with output.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            answer = json.loads(line)
            response = answer["response"]
            if response is None or response["status_code"] >= 400:
                error = answer["error"] if response is None else response["body"]["error"]
                return f"The first that failed is {answer['custom_id']}, line {number}: {error['message']}"
    return None


def _repeated_options(context: typer.Context, url: str) -> str:
    """Return the options that follow-up commands need too; never the key."""
    source = context.get_parameter_source("url")
    return f" --url {shlex.quote(url)}" if source is not None and source.name == "COMMANDLINE" else ""


def _endpoint_of(source: Path) -> str:
    """Return the endpoint of the first line, by default that of chats. The service checks it."""
    with source.open("rb") as lines:
        for line in lines:
            if line.strip():
                try:
                    return str(json.loads(line.removeprefix(b"\xef\xbb\xbf"))["url"])
                except (ValueError, KeyError, TypeError):
                    break
    return MODEL_OPERATIONS[Operation.CHAT].path


def _errors(batch: Any) -> list[str]:
    errors = (batch.errors.data if batch.errors else None) or []
    return [f"{'' if error.line is None else f'line {error.line}: '}{error.message}" for error in errors]


def _counts(batch: Any) -> str:
    counts = batch.request_counts
    return f"{counts.completed:,} of {counts.total:,} requests completed, {counts.failed:,} failed"


def _print(batch: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(batch.model_dump())
        return
    rows = [
        ("id", batch.id),
        ("status", batch.status),
        ("endpoint", batch.endpoint),
        ("requests", _counts(batch)),
        ("tokens", None if batch.usage is None else batch.usage.total_tokens),
        ("input file", batch.input_file_id),
        ("output file", batch.output_file_id),
        ("error file", batch.error_file_id),
        *(
            (name.removesuffix("_at").replace("_", " "), render_time(at))
            for name, at in batch.model_dump().items()
            if name.endswith("_at") and at is not None
        ),
        *(("error", error) for error in _errors(batch)),
    ]
    print_table(("field", "value"), rows)


def follow(client: Any, batch: Any) -> Any:
    """Return the batch once it has ended; `client` is OpenAI's."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    wait_s = _FIRST_POLL_S
    with Progress(*columns, console=Console(stderr=True), speed_estimate_period=_RATE_OVER_S) as progress:
        task = progress.add_task(batch.status, total=None, rate="")
        while batch.status not in ENDED:
            time.sleep(wait_s)
            wait_s = min(_MAX_POLL_S, wait_s * 1.5)
            if (polled := _poll(client, batch.id)) is None:
                progress.update(task, description="waiting for the service")
            else:
                batch = polled
                _show_progress(progress, task, batch)
    return batch


def _poll(client: Any, batch_id: str) -> Any:
    """Return the batch, None while the service is away: the batch survives that."""
    from openai import APIConnectionError, InternalServerError, RateLimitError

    try:
        return client.batches.retrieve(batch_id)
    except (APIConnectionError, InternalServerError, RateLimitError):
        return None


def _show_progress(progress: Progress, task: TaskID, batch: Any) -> None:
    counts = batch.request_counts
    speed = progress.tasks[0].speed
    progress.update(
        task,
        description=batch.status,
        total=counts.total or None,
        completed=counts.completed + counts.failed,
        rate="" if not speed else f"{speed:,.1f}/s",
    )
