"""Databases, as the tests of state have them."""

from tests.contract.state.conftest import database, database_url, postgres_server, postgres_url

__all__ = ["database", "database_url", "postgres_server", "postgres_url"]
