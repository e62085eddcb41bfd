"""Databases, as the tests of state have them."""

from tests.contract.state.conftest import database, database_url, mortal_postgres, postgres_server, postgres_url

__all__ = ["database", "database_url", "mortal_postgres", "postgres_server", "postgres_url"]
