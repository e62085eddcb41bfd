"""`manta regions`: shows the regions, and takes one out of traffic."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from deployments.state.audit_log import command_line_actor
from deployments.state.database.connection import Database
from deployments.state.objects.copies import Backlog, PendingCopies
from deployments.state.regions.register import Region, RegionRegister, RegionUnknown, Standby, leaders, standbys
from serve_app.cli.database import ConfigOption, DatabaseUrlOption, Place, StateDirOption, fail, run
from serve_app.cli.output import Commands, JsonOption, print_json, print_table, render_time

T = TypeVar("T")
RegionArgument = Annotated[str, typer.Argument(help="The region's name.")]

_NUMBERS = ("limit", "share", "used", "lent", "borrowed")

app = typer.Typer(cls=Commands, help="Show regions, and take one out of traffic.", no_args_is_help=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    regions: list[Region]
    leads: dict[str, list[str]]
    standbys: list[Standby]
    backlog: dict[str, Backlog]


@app.command("list")
def list_regions(
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """List the regions: their health, the work they lead, and how far standbys and object stores are behind."""
    seen = _run(Place(config, state_dir, database_url), _look)
    now = time.time()
    if as_json:
        print_json([_to_wire(region, seen, now) for region in seen.regions])
        return
    columns = ("region", "state", "seen", "replicas", "version", "leads", "lacks objects")
    rows = [
        (
            region.name,
            _state_of(region, now),
            render_time(region.seen_at),
            region.facts.get("replicas", "-"),
            region.facts.get("version", "-"),
            ", ".join(seen.leads.get(region.name, ())) or "-",
            f"{lacks.num_objects}, for {lacks.oldest_s:.0f} s" if (lacks := seen.backlog.get(region.name)) else "-",
        )
        for region in seen.regions
    ]
    print_table(
        columns,
        rows,
        numeric=("replicas",),
        optional=("leads", "lacks objects", "version", "replicas"),
        empty="There are no regions: no service whose configuration has a section `region` has started.",
    )
    behind = [
        (one.name, "synchronous" if one.is_synchronous else "asynchronous", f"{one.lag_s:.1f} s", one.lag_bytes)
        for one in seen.standbys
    ]
    shares = [row for region in seen.regions for row in _shares(region)]
    if shares:
        print_table(("region", "key", "of", *_NUMBERS), shares, numeric=_NUMBERS, optional=_NUMBERS[2:])
    if behind:
        print_table(("standby", "commits", "behind", "bytes behind"), behind, numeric=("bytes behind",))


@app.command("drain")
def drain(
    name: RegionArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Send a region's requests to the others until it is undrained; running requests are finished."""
    place = Place(config, state_dir, database_url)
    _run(place, lambda database: RegionRegister(database).drain(name, command_line_actor()))
    _tell(
        {"name": name, "is_drained": True},
        f"{name} takes no new requests in a few seconds. Bring it back with: manta regions undrain {name}",
        as_json=as_json,
    )


@app.command("undrain")
def undrain(
    name: RegionArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Let a region take requests again."""
    place = Place(config, state_dir, database_url)
    _run(place, lambda database: RegionRegister(database).undrain(name, command_line_actor()))
    _tell({"name": name, "is_drained": False}, f"{name} takes requests again in a few seconds.", as_json=as_json)


@app.command("forget")
def forget(
    name: RegionArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Remove a region that is gone for good from the list; a running region comes back."""
    place = Place(config, state_dir, database_url)
    _run(place, lambda database: RegionRegister(database).forget(name, command_line_actor()))
    _tell({"name": name, "is_forgotten": True}, f"{name} is no longer listed.", as_json=as_json)


def _tell(outcome: dict[str, Any], sentence: str, *, as_json: bool) -> None:
    if as_json:
        print_json(outcome)
    else:
        typer.echo(sentence)


def _run(place: Place, work: Callable[[Database], Awaitable[T]]) -> T:
    try:
        return run(place, lambda stores: work(stores.database))
    except RegionUnknown as error:
        fail(f"No region called {error} has signed in. `manta regions list` shows those that have.")


async def _look(database: Database) -> _Seen:
    leads: dict[str, list[str]] = {}
    for work, region in (await leaders(database)).items():
        leads.setdefault(region, []).append(work)
    regions = await RegionRegister(database).all_regions()
    return _Seen(regions, leads, list(await standbys(database)), await PendingCopies(database).backlog())


def _state_of(region: Region, now: float) -> str:
    if not region.is_living(now):
        return "gone"
    if region.drained_at is not None:
        return "drained"
    return str(region.facts.get("health", "up"))


def _shares(region: Region) -> list[tuple[object, ...]]:
    limits = region.facts.get("limits") or {"keys": []}
    return [
        (region.name, key["key_id"], dimension, *(key[dimension][name] for name in _NUMBERS))
        for key in limits["keys"]
        for dimension in ("requests", "tokens")
        if key[dimension]["used"] or key[dimension]["lent"]
    ]


def _to_wire(region: Region, seen: _Seen, now: float) -> dict[str, Any]:
    lacking = seen.backlog.get(region.name, Backlog(0, 0.0))
    return {
        "name": region.name,
        "state": _state_of(region, now),
        "seen_at": region.seen_at,
        "drained_at": region.drained_at,
        **{name: region.facts.get(name) for name in ("version", "replicas", "health", "limits")},
        "leads": seen.leads.get(region.name, []),
        "lacks_objects": lacking.num_objects,
        "lacks_objects_for_s": lacking.oldest_s,
        "standbys": [
            {"name": one.name, "is_synchronous": one.is_synchronous, "lag_s": one.lag_s, "lag_bytes": one.lag_bytes}
            for one in seen.standbys
        ],
    }
