"""Clients of an application whose batches run in this process, over each kind of database."""

import openai
import pytest

from batch import stores
from tests.waiting import eventually

on_both_databases = pytest.mark.parametrize("files_url", ["sqlite", "postgresql"], indirect=True)
"""For a test whose statements differ most: it runs over both kinds of database with every change."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.exhaustive)])
def files_url(request, tmp_path):
    """The same suite over each kind of database; the tests of the state run over both with every change."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_at")(tmp_path / "files.db")
    return request.getfixturevalue("postgres_url")


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """What a store refused is tried again every 20 ms."""
    monkeypatch.setattr(stores, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(stores, "_MAX_WAIT_S", 0.02)


async def asked_in_vain(world, num_times: int = 40) -> None:
    """Wait until the object store, which cannot do what it is asked for, has been asked for it so often."""
    before = world.objects.num_asked
    await eventually(lambda: world.objects.num_asked >= before + num_times)


@pytest.fixture
def client(world, batching) -> openai.AsyncOpenAI:
    world.principal(requests_per_minute=100_000)
    return world.client()


@pytest.fixture
async def http(world, batching):
    async with world.http() as http:
        yield http
