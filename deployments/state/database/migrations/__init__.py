"""The versions of the tables: the one that a database is at, and the way to the newest.

A new database gets all tables as they are declared. One that an earlier version made is changed step by step, by the
steps in `versions`. These add first: what the version before still uses is removed one version later,
since both may run on one database for a while.
"""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from deployments.config import ConfigError
from deployments.state.database.tables import metadata, revisions

_SCRIPTS = Path(__file__).parent
# As alembic declares it.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def head_revision() -> str:
    """Return the name of the newest migration."""
    return sorted(path.stem for path in (_SCRIPTS / "versions").glob("v*.py"))[-1]


def current_revision(connection: Connection) -> str | None:
    """Return the migration that a database is at; None if it has no tables yet."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    revision: str | None = connection.execute(select(_VERSION.c.version_num)).scalar()
    return revision


def upgrade(connection: Connection, head: str) -> None:
    """Create the tables, or run the missing migrations; the second of several processes has nothing to do.

    Raises:
        ConfigError: the database was written by a newer version, or by one that is too old.
    """
    current = current_revision(connection)
    if current == head:
        return
    if current is None:
        _create(connection, head)
        return
    if not (_SCRIPTS / "versions" / f"{current}.py").exists():
        advice = "start a newer version" if current > head else "start the version of 2026-11-27 once, then this one"
        raise ConfigError(f"The database is at {current}, which this version does not know: {advice}.")
    from alembic import command  # Half a second to import, and needed only when the tables change.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _create(connection: Connection, head: str) -> None:
    metadata.create_all(connection)
    _VERSION.create(connection)
    connection.execute(insert(_VERSION).values(version_num=head))
    connection.execute(insert(revisions).values(name="api_keys", value=0))
