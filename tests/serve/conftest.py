"""Two running services whose engines are scripted, one after the other.

`service` is for nearly every test, `fixed` for those that need replicas that stay, TLS or PostgreSQL.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.certificates import CertificateFiles
from tests.clients import async_client, client, http, key
from tests.contract.state.postgres import PostgresServer
from tests.databases import postgres_server
from tests.serve.configurations import ENVIRONMENT, fixed_config, fixed_environment, main_config
from tests.service import Service, running_service

__all__ = ["async_client", "client", "http", "key", "postgres_server"]

_FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of `service` before those of `fixed`, and last of each those of time and the restart."""
    places = [number for number, item in enumerate(items) if item.path.is_relative_to(_FOLDER)]
    own = sorted((items[place] for place in places), key=_order)
    for place, item in zip(places, own, strict=True):
        items[place] = item


def _order(item: pytest.Item) -> tuple[int, bool, bool]:
    names = getattr(item, "fixturenames", ())
    uses = 2 if "fixed" in names else 1 if "service" in names else 0
    return uses, item.path.name == "test_restart.py", item.get_closest_marker("timed") is not None


@pytest.fixture(scope="package")
def service(running: list[Service]) -> Iterator[Service]:
    """A service over SQLite, whose replicas come and go."""
    yield from _instead_of_others(running, main_config(), ENVIRONMENT)


@pytest.fixture(scope="package")
def fixed(
    running: list[Service], of_replicas: CertificateFiles, of_ray: CertificateFiles, fixed_database_url: str
) -> Iterator[Service]:
    """A service over PostgreSQL with TLS, whose replicas stay."""
    environment = fixed_environment(of_ray, fixed_database_url)
    yield from _instead_of_others(running, fixed_config(of_replicas), environment)


@pytest.fixture(scope="package")
def of_replicas(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """What the ingress replicas of `fixed` show to its front."""
    return CertificateFiles(tmp_path_factory.mktemp("replicas"), "manta", "127.0.0.1")


@pytest.fixture(scope="package")
def of_ray(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """What the Ray processes of `fixed` show to each other."""
    own = {one.address for own in psutil.net_if_addrs().values() for one in own if one.family is socket.AF_INET}
    return CertificateFiles(tmp_path_factory.mktemp("ray"), "localhost", *sorted(own))


@pytest.fixture(scope="package")
def fixed_database_url(postgres_server: PostgresServer) -> str:
    """The database of `fixed`."""
    return postgres_server.copy_database()


@pytest.fixture(scope="package")
def running() -> list[Service]:
    """The services that have been started."""
    return []


def _instead_of_others(
    running: list[Service], config: dict[str, Any], environment: dict[str, str]
) -> Iterator[Service]:
    """Yield a service that starts once all others have ended: at rest one takes most of a slow core."""
    for other in running:
        if not other.has_ended:
            other.stop()
    with running_service(config, environment) as service:
        running.append(service)
        yield service
