"""The versions of the tables: which one a database has, and the steps to the newest.

A new database gets all tables as they are declared. A database of an earlier version is changed by the scripts in
`versions`, step by step. They add first: what the version before still uses is removed one version later, since both
may run on one database for a while.
"""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from deployments.config import ConfigError
from deployments.state.database.tables import content, responses, usage  # noqa: F401 - They declare more tables.
from deployments.state.database.tables.service import metadata, revisions

_SCRIPTS = Path(__file__).parent
# As alembic declares it.
_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def head_revision() -> str:
    """Return the name of the newest version."""
    return sorted(path.stem for path in (_SCRIPTS / "versions").glob("v*.py"))[-1]


def is_known_revision(name: str) -> bool:
    """Return whether there is a step from the tables of a version to the newest ones."""
    return (_SCRIPTS / "versions" / f"{name}.py").exists()


def current_revision(connection: Connection) -> str | None:
    """Return the version of a database's tables; None if it has none yet."""
    if not inspect(connection).has_table(_VERSION.name):
        return None
    revision: str | None = connection.execute(select(_VERSION.c.version_num)).scalar()
    return revision


def upgrade(connection: Connection) -> None:
    """Create the tables, or run the missing migrations. Nothing happens if another process has just done it.

    Raises:
        ConfigError: the database was written by a newer version, or by one that is too old.
    """
    current, head = current_revision(connection), head_revision()
    if current == head:
        return
    if current is None:
        metadata.create_all(connection)
        _VERSION.create(connection)
        connection.execute(insert(_VERSION).values(version_num=head))
        connection.execute(insert(revisions).values(name="api_keys", value=0))
        return
    if not is_known_revision(current):
        advice = "start a newer version" if current > head else "start the version of 2026-11-27 once, then this one"
        raise ConfigError(f"The database is at {current}, which this version does not know: {advice}.")
    from alembic import command  # Half a second to import, and needed only when the tables change.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
