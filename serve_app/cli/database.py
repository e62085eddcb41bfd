"""The database that commands work on, and `manta adopt-object-store`, which pairs it with an object store."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from sqlalchemy.exc import SQLAlchemyError

from deployments.config import ConfigError
from deployments.state.config import ResolvedState, StateConfig, parse_database_url, resolve_state
from deployments.state.database.connection import Database, connect
from deployments.state.identity.key_store import KeyNotFound, KeyRefused, KeyStore
from deployments.state.objects.marker import adopt, create_objects
from deployments.state.objects.store import StoreUnavailable
from deployments.state.regions.config import RegionConfig
from deployments.state.usage.store import UsageStore
from serve_app.checks.check import remark_on
from serve_app.checks.document import read_document
from serve_app.checks.sentences import faults_in
from serve_app.checks.shapes import ARGS
from serve_app.cli.output import JsonOption, option_at_fault, print_json

T = TypeVar("T")

_SILENT_S = 3.0
"""After this long a command prints that it waits: in a region that is cut off, finding the primary takes 20 s."""
_OTHER_TIERS = "These are the defaults. Give the service's configuration with --config to use its tiers."

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="Use the database of this Serve configuration file.", dir_okay=False)
]
StateDirOption = Annotated[
    Path | None, typer.Option("--state-dir", help="The state directory; by default $MANTA_STATE_DIR or .manta.")
]
DatabaseUrlOption = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="MANTA_DATABASE_URL",
        show_envvar=True,
        help="sqlite:///FILE or postgresql://USER@HOST/NAME. If it contains a password, prefer the variable.",
    ),
]


@dataclass(frozen=True)
class Place:
    """The options that say where the database is."""

    config: Path | None
    state_dir: Path | None
    database_url: str | None


@dataclass(frozen=True)
class Stores:
    """The stores that a command uses while the database is open."""

    database: Database
    keys: KeyStore
    usage: UsageStore


def run(place: Place, work: Callable[[Stores], Awaitable[T]], *, may_create: bool = False) -> T:
    """Return what `work` returns on the database at `place`. Errors that the operator can fix end the command.

    A missing SQLite file is created only if `may_create`.
    """
    try:
        state = find_state(place, may_create=may_create)
        return asyncio.run(_run(state, work))
    except ValidationError as error:
        fail(option_at_fault(error))
    except (ConfigError, KeyRefused, KeyNotFound) as error:
        message = str(error.args[0]) if error.args else type(error).__name__
        is_default = isinstance(error, KeyRefused) and error.param == "tier" and place.config is None
        fail(f"{message} {_OTHER_TIERS}" if is_default else message)
    except SQLAlchemyError as error:
        fail(f"The database failed: {getattr(error, 'orig', None) or type(error).__name__}.")


def find_state(place: Place, *, may_create: bool, environ: Mapping[str, str] | None = None) -> ResolvedState:
    """Return the state of the service, from the configuration file and from options that override it.

    Raises:
        ConfigError: there is no such file, or its state cannot be used.
    """
    config, region = (StateConfig(), None) if place.config is None else _read_config(place.config)
    if place.state_dir is not None:
        config = config.model_copy(update={"state_dir": place.state_dir})
    url = None if place.database_url is None else parse_database_url(place.database_url)
    if not may_create:
        _check_exists(config, url, os.environ if environ is None else environ)
    state = resolve_state(config, environ, region)
    return state if url is None else replace(state, database_url=url)


def fail(message: str) -> NoReturn:
    """Print a message on standard error and exit with 1."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(1)


def _check_exists(config: StateConfig, url: str | None, environ: Mapping[str, str]) -> None:
    """Refuse to create a state directory, a pepper and an empty database just to find nothing in them."""
    directory = config.state_dir
    if not isinstance(directory, Path):
        directory = Path(environ.get(directory.env) or directory.default or ".")
    if url is None and config.database_url is None:
        url = parse_database_url(f"sqlite:///{directory.expanduser() / 'manta.db'}")
    path = None if url is None or not url.startswith("sqlite") else Path(url.split(":///", 1)[1])
    if path is not None and not path.exists():
        raise ConfigError(
            f"There is no database at {path}. Give its place with --config, --state-dir or --database-url, "
            "or create it with `manta keys create`."
        )


def _read_config(path: Path) -> tuple[StateConfig, RegionConfig | None]:
    document = read_document(path)
    for place, args in document.find(ARGS):
        if isinstance(args, dict):
            state, region = args.get("state") or {}, args.get("region")
            faults = faults_in(state, StateConfig, (*place, "state"))
            faults += [] if region is None else faults_in(region, RegionConfig, (*place, "region"))
            if faults:
                raise ConfigError("\n".join(remark_on(document, fault).text for fault in faults))
            return StateConfig.model_validate(state), None if region is None else RegionConfig.model_validate(region)
    raise ConfigError(f"{path} is not a Serve configuration: it lists no application with args.")


async def work_on(state: ResolvedState, work: Callable[[Database], Awaitable[T]]) -> T:
    """Return what `work` returns on the database. If that takes long, print a notice on standard error.

    Raises:
        SQLAlchemyError: the database cannot be opened.
    """
    loop = asyncio.get_running_loop()
    notice = loop.call_later(_SILENT_S, lambda: typer.echo("The database does not answer yet; waiting.", err=True))
    try:
        database = await connect(state.database_url)
        try:
            return await work(database)
        finally:
            await database.close()
    finally:
        notice.cancel()


async def _run(state: ResolvedState, work: Callable[[Stores], Awaitable[T]]) -> T:
    def use(database: Database) -> Awaitable[T]:
        keys = KeyStore(database, state.pepper, state.config.tiers)
        return work(Stores(database, keys, UsageStore(database)))

    return await work_on(state, use)


def adopt_object_store(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Pair the database with the object store of a configuration, after a start refused them.

    Files that are in the database but not in the object store stay lost. Objects that are not in the database are
    deleted within hours of the next start. An object store belongs to one database only.
    """
    try:
        state = find_state(Place(config, state_dir, database_url), may_create=False)
        if not yes:
            typer.confirm(
                f"From now on {state.object_store.url} belongs to this database. Files that are not in both are lost. "
                "Go on?",
                abort=True,
            )
        asyncio.run(work_on(state, partial(_adopt, state)))
    except ConfigError as error:
        fail(str(error))
    except StoreUnavailable:
        fail(f"The object store {state.object_store.url} cannot be written. Try again when it can.")
    if as_json:
        print_json({"object_store": state.object_store.url})
    else:
        typer.echo(f"{state.object_store.url} belongs to this database now. Start the service again.")


async def _adopt(state: ResolvedState, database: Database) -> None:
    for place in (state.object_store, state.object_store.other):
        if place is not None:
            await adopt(database, create_objects(place), place.name)
