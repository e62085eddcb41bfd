"""The versions of the tables, as migrations: which one a database is at, and the way to the newest."""

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from deployments.config import ConfigError

_MIGRATIONS = Path(__file__).parent / "migrations"


def head_revision() -> str:
    """Return the name of the newest migration."""
    return sorted(path.stem for path in (_MIGRATIONS / "versions").glob("v*.py"))[-1]


def current_revision(connection: Connection) -> str | None:
    """Return the migration that a database is at; None if it has no tables yet."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def upgrade(connection: Connection, head: str) -> None:
    """Run the missing migrations; the second of several processes finds none.

    Raises:
        ConfigError: the database was written by a newer version.
    """
    current = current_revision(connection)
    if current == head:
        return
    if current is not None and not (_MIGRATIONS / "versions" / f"{current}.py").exists():
        raise ConfigError(f"The database is at {current}, which this version does not know: start a newer version.")
    from alembic import command  # Half a second to import, and needed only when the tables change.
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
