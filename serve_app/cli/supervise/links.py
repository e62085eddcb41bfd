"""The one-time link into the console that `manta serve` prints, under the oldest key that is no admin key."""

from sqlalchemy.exc import DBAPIError

from deployments.config import ConfigError
from deployments.state.config import ResolvedState
from deployments.state.console_sessions import ConsoleSessions
from deployments.state.database.connection import connect
from deployments.state.identity.key_store import KeyStore


async def create_link(state: ResolvedState) -> str | None:
    """Return the token of a new link; None where no key can sign in, or the database is away."""
    try:
        database = await connect(state.database_url)
    except ConfigError:
        return None
    try:
        sessions = ConsoleSessions(database)
        keys = await KeyStore(database, state.pepper, state.config.tiers).list_keys()
        usable = [key for key in keys if not key.is_admin and key.status(sessions.clock()) == "active"]
        return await sessions.create_link(usable[-1].key_id) if usable else None
    except DBAPIError:
        return None
    finally:
        await database.close()
