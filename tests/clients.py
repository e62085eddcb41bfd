"""A running service's key and clients, as fixtures: a conftest imports them beside its own fixture `service`."""

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.service import Service

__all__ = ["async_client", "client", "http", "key"]


@pytest.fixture(scope="package")
def key(service: Service) -> str:
    """A key without limits."""
    return service.issue_unlimited()


@pytest.fixture(scope="package")
def client(service: Service, key: str) -> Iterator[OpenAI]:
    """OpenAI's client; it repeats nothing by itself."""
    with OpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture
async def async_client(service: Service, key: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client for many requests at once."""
    async with AsyncOpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0, timeout=180) as client:
        yield client


@pytest.fixture
def http(service: Service, key: str) -> Iterator[httpx2.Client]:
    """A plain HTTP client, for bodies that OpenAI's client would not send."""
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    with httpx2.Client(base_url=service.url, headers=headers, timeout=120) as client:
        yield client
