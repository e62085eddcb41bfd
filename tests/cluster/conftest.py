"""One running service for nearly every test; the few that start their own come before it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.cluster.cluster import CHAT, EMBED, LONG, SMALL, Service, read_config

QUICK = {"upscale_delay_s": 1, "downscale_delay_s": 10, "metrics_interval_s": 0.5, "look_back_period_s": 4}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that share the service last, so that it never runs beside another."""
    items.sort(key=lambda item: "service" in getattr(item, "fixturenames", ()))


def main_config() -> dict[str, Any]:
    """Return two_chat_models.yaml with quick autoscaling, small queues, and a third model that scales to zero."""
    config = read_config("two_chat_models.yaml")
    args = config["applications"][0]["args"]
    models = {model["id"]: model for model in args["models"]}
    (long,) = read_config("long_context.yaml")["applications"][0]["args"]["models"]
    args["models"].append(long)
    for model in args["models"]:
        model["placement_group_config"] = {"bundles": [{"CPU": 0.2}]}
    models[CHAT]["autoscaling_config"] = {"min_replicas": 1, "max_replicas": 1}
    models[SMALL] |= {
        "max_concurrent_requests": 16,
        "max_queued_requests": 16,
        "autoscaling_config": {"min_replicas": 1, "max_replicas": 2, "target_ongoing_requests": 8, **QUICK},
    }
    models[EMBED] |= {
        "autoscaling_config": {"min_replicas": 1, "max_replicas": 1, "target_ongoing_requests": 8, **QUICK},
        "batch_replicas": {"min_replicas": 0, "max_replicas": 1},
        "scale_to_zero_wait_s": 180,
    }
    long |= {
        "autoscaling_config": {
            "min_replicas": 0,
            "max_replicas": 1,
            "target_ongoing_requests": 8,
            **QUICK,
            "downscale_delay_s": 8,
        },
        "scale_to_zero_wait_s": 180,
    }
    args["ingress"] = {
        "autoscaling_config": {"min_replicas": 2, "max_replicas": 3, "target_ongoing_requests": 8, **QUICK}
    }
    args["batches"] = {"small_batch_lines": 500}
    args["tools"] = {
        "outbound": {"allowed_networks": ["127.0.0.0/8"]},
        "code_interpreter": {"num_warm": 1, "preload": [], "max_containers": 8},
        "mcp": {},
        "file_search": {"embedding_model": EMBED},
    }
    assert {CHAT, SMALL, EMBED} == models.keys()
    assert long["id"] == LONG
    return config


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """The service that nearly every test uses."""
    service = Service(main_config())
    try:
        service.start()
        yield service
        service.stop()
    finally:
        service.kill()
        service.remove()


@pytest.fixture(scope="session")
def key(service: Service) -> str:
    """A key without limits."""
    return service.issue_unlimited()


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def token_ids() -> dict[str, int]:
    """The demo models' vocabulary."""
    from tokenizers import Tokenizer

    from deployments.models.demo import resolve_source

    vocabulary: dict[str, int] = Tokenizer.from_file(f"{resolve_source('demo:chat')}/tokenizer.json").get_vocab()
    return vocabulary
