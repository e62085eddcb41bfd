"""`manta usage` and `manta requests`: usage by key, model and day, and the latest requests of a key."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from deployments.models.price import COST_PER_UNIT, show_money
from deployments.state.usage.record import RequestRecord
from deployments.state.usage.store import UsageRow
from serve_app.cli.database import ConfigOption, DatabaseUrlOption, Place, StateDirOption, Stores, run
from serve_app.cli.output import JsonOption, print_json, print_table, render_time

_COUNTS = ("num_requests", "num_errors", "prompt_tokens", "completion_tokens", "cached_tokens", "discounted_tokens")
_USAGE = ("day", "name", "model", "requests", "errors", "prompt", "completion", "cost", "key", "cached", "discount")


def show_usage(
    key: Annotated[str | None, typer.Option(help="Only this key id.")] = None,
    account: Annotated[str | None, typer.Option(help="Only keys of this account.")] = None,
    days: Annotated[int, typer.Option(help="How many days to look back, today included (UTC).", min=1, max=3650)] = 30,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Show requests, tokens and cost per key, model and day, with the total."""
    since = (datetime.now(UTC) - timedelta(days=days - 1)).date()

    async def work(stores: Stores) -> tuple[list[UsageRow], dict[str, str]]:
        if key is not None:
            await stores.keys.show(key)
        rows = await stores.usage.by_day(key_id=key, account=account, since=since)
        return rows, {one.key_id: one.name for one in await stores.keys.list_keys(include_revoked=True)}

    rows, names = run(Place(config, state_dir, database_url), work)
    if as_json:
        costs = [{**asdict(row), "key_name": names.get(row.key_id), "cost": _in_currency(row.cost)} for row in rows]
        print_json(costs)
    else:
        _print_usage(rows, names, days)


def show_requests(
    key_id: Annotated[str, typer.Argument(help="The key's id, key_...", show_default=False)],
    limit: Annotated[int, typer.Option(help="How many, newest first.", min=1, max=1000)] = 20,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Show the latest requests of a key: time, route, status, tokens and durations."""

    async def work(stores: Stores) -> list[RequestRecord]:
        await stores.keys.show(key_id)
        return await stores.usage.last_requests(key_id, limit=limit)

    records = run(Place(config, state_dir, database_url), work)
    if as_json:
        print_json(records)
        return
    columns = ("at", "status", "code", "route", "model", "prompt", "completion", "total", "ttft", "request")
    cells = [
        (
            render_time(record.at),
            str(record.status),
            record.code,
            record.route,
            record.model,
            record.prompt_tokens,
            record.completion_tokens,
            f"{record.total_s:.3f} s",
            None if record.ttft_s is None else f"{record.ttft_s:.3f} s",
            record.request_id,
        )
        for record in records
    ]
    print_table(
        columns,
        cells,
        numeric=("prompt", "completion", "ttft", "total"),
        optional=("code", *columns[4:]),
        empty=f"{key_id} has made no requests that the request log still has.",
    )


def _print_usage(rows: Sequence[UsageRow], names: Mapping[str, str], days: int) -> None:
    def cells(day: str, name: str, model: str, key: str, counts: Sequence[int], cost: int) -> tuple[object, ...]:
        requests, errors, prompt, completion, cached, discount = counts
        shown = show_money(_in_currency(cost)) if cost else "-"
        return day, name, model, requests, errors, prompt, completion, shown, key, cached, discount

    listed = [
        cells(
            row.day.isoformat(),
            names.get(row.key_id, row.key_id),
            row.model or "-",
            row.key_id,
            [getattr(row, name) for name in _COUNTS],
            row.cost,
        )
        for row in rows
    ]
    if rows:
        sums = [sum(getattr(row, name) for row in rows) for name in _COUNTS]
        listed.append(cells("total", "", "", "", sums, sum(row.cost for row in rows)))
    print_table(
        _USAGE,
        listed,
        numeric=(*_USAGE[3:8], *_USAGE[9:]),
        optional=("model", "cost", "prompt", "completion", "errors", *_USAGE[8:]),
        empty=f"There were no requests in the last {days} days." if days > 1 else "There were no requests today.",
    )


def _in_currency(cost: int) -> float:
    return cost / COST_PER_UNIT
