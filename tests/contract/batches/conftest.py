"""Databases, as the tests of state have them, and a bucket, as those of the object store have it."""

from tests.contract.http.conftest import world
from tests.contract.objects.conftest import bucket, s3_endpoint
from tests.contract.state.conftest import database, database_url, mortal_postgres, postgres_server, postgres_url

__all__ = [
    "bucket",
    "database",
    "database_url",
    "mortal_postgres",
    "postgres_server",
    "postgres_url",
    "s3_endpoint",
    "world",
]
