"""Stores for what reads them."""

from tests.databases import database, database_url, postgres_server, postgres_url, sqlite_at, sqlite_template

__all__ = ["database", "database_url", "postgres_server", "postgres_url", "sqlite_at", "sqlite_template"]
