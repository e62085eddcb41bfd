"""Stores for every contract, and which tests share a process when several run side by side."""

import pytest

from tests.buckets import bucket, objects, s3_endpoint
from tests.databases import (
    database,
    database_url,
    mortal_postgres,
    postgres_server,
    postgres_url,
    sqlite_at,
    sqlite_template,
)

__all__ = [
    "bucket",
    "database",
    "database_url",
    "mortal_postgres",
    "objects",
    "postgres_server",
    "postgres_url",
    "s3_endpoint",
    "sqlite_at",
    "sqlite_template",
]

GROUPS = {
    "real_engine": "engine",  # Importing vLLM and starting an engine take half a minute.
    "trained_engine": "engine",
    "protocols": "engine",
    "compiler": "compiler",  # One process compiles the schemas of a module.
    "node": "node",  # The client's package is installed into one folder.
    "host": "sandbox",  # Sandboxes are made to reach the bounds of the machine.
    "pod": "sandbox",
}
"""The group of tests that use a fixture: pytest-xdist runs a group in one process, one test after the other."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in GROUPS:
                item.add_marker(pytest.mark.xdist_group(GROUPS[fixture]))
                break
