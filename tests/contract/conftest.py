"""Stores for every contract."""

from tests.buckets import bucket, objects, s3_endpoint
from tests.databases import (
    database,
    database_url,
    empty_database_url,
    mortal_postgres,
    postgres_server,
    postgres_url,
    resting_postgres,
    sqlite_at,
    sqlite_template,
)

__all__ = [
    "bucket",
    "database",
    "database_url",
    "empty_database_url",
    "mortal_postgres",
    "objects",
    "postgres_server",
    "postgres_url",
    "resting_postgres",
    "s3_endpoint",
    "sqlite_at",
    "sqlite_template",
]
