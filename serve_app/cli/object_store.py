"""`manta adopt-object-store`: marks a database and an object store as a pair from now on."""

import asyncio
from functools import partial
from typing import Annotated

import typer

from deployments.config import ConfigError
from deployments.state.config import ResolvedState
from deployments.state.database.connection import Database
from deployments.state.objects.marker import adopt, create_objects
from deployments.state.objects.store import StoreUnavailable
from serve_app.cli.database import ConfigOption, DatabaseUrlOption, Place, StateDirOption, fail, find_state, work_on


def adopt_object_store(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: ConfigOption = None,
    state_dir: StateDirOption = None,
    database_url: DatabaseUrlOption = None,
) -> None:
    """Mark the database and the object store of a configuration as a pair, where a start refuses them.

    Files that the database knows and that are not in the object store stay lost. What is in the object store and not in
    the database is deleted within hours of the next start. An object store belongs to one database only.
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
    typer.echo(f"{state.object_store.url} belongs to this database now. Start the service again.")


async def _adopt(state: ResolvedState, database: Database) -> None:
    for place in (state.object_store, state.object_store.other):
        if place is not None:
            await adopt(database, create_objects(place), place.name)
