"""`manta usage` and `manta requests`: usage by key, model and day, and the latest requests of a key."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from serve_app.cli.database import ConfigOption, DatabaseUrlOption, JsonOption, Place, StateDirOption, run
from serve_app.cli.output import print_json, print_table, render_time


def show_usage(
    key: Annotated[str | None, typer.Option(help="Only this key id.")] = None,
    account: Annotated[str | None, typer.Option(help="Only keys of this account.")] = None,
    days: Annotated[int, typer.Option(help="How many days to look back, today included (UTC).", min=1, max=3650)] = 30,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Show requests and tokens per key, model and day."""
    since = (datetime.now(UTC) - timedelta(days=days - 1)).date()
    rows = run(
        Place(config, state_dir, database_url),
        lambda stores: stores.usage.by_day(key_id=key, account=account, since=since),
    )
    if as_json:
        print_json(rows)
        return
    columns = ("day", "key", "account", "model", "requests", "errors", "prompt", "completion", "cached", "discount")
    cells = [
        (
            row.day.isoformat(),
            row.key_id,
            row.account,
            row.model or "-",
            row.num_requests,
            row.num_errors,
            row.prompt_tokens,
            row.completion_tokens,
            row.cached_tokens,
            row.discounted_tokens,
        )
        for row in rows
    ]
    print_table(columns, cells, numeric=columns[4:])


def show_requests(
    key_id: Annotated[str, typer.Argument(help="The key's id, key_...", show_default=False)],
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=1000)] = 20,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Show the latest requests of a key: time, route, status, tokens and durations."""
    records = run(
        Place(config, state_dir, database_url), lambda stores: stores.usage.last_requests(key_id, limit=limit)
    )
    if as_json:
        print_json(records)
        return
    columns = ("at", "request", "route", "model", "status", "code", "prompt", "completion", "ttft", "total")
    cells = [
        (
            render_time(record.at),
            record.request_id,
            record.route,
            record.model,
            str(record.status),
            record.code,
            record.prompt_tokens,
            record.completion_tokens,
            None if record.ttft_s is None else f"{record.ttft_s:.3f} s",
            f"{record.total_s:.3f} s",
        )
        for record in records
    ]
    print_table(columns, cells, numeric=("prompt", "completion", "ttft", "total"))
