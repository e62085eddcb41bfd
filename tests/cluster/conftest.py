"""One running service with vLLM's engines for nearly every test."""

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.adapters import make_adapter
from tests.clients import async_client, client, http, key
from tests.service import ADAPTERS, TRAINED, Service, read_config, running_service
from tests.twins.web import Web

__all__ = ["async_client", "client", "http", "key"]

QUICK = {"upscale_delay_s": 0.5, "downscale_delay_s": 5, "metrics_interval_s": 0.5, "look_back_period_s": 2}
ENVIRONMENT = {
    "RAY_AUTH_TOKEN": "",
    "RAY_metrics_report_interval_ms": "1000",  # Ten seconds by default, for which test_metrics would wait.
}


def main_config(search_url: str, adapters: Path) -> dict[str, Any]:
    """Return local.yaml with two more models: one with random weights and adapters, and one that sleeps until asked.

    The trained model comes first, so that its name is in the lines that `manta serve` prints.
    """
    config = read_config("local.yaml")
    args = config["applications"][0]["args"]
    trained, embed = args["models"]
    (chat, *_), (long,) = map(models_of, ("two_chat_models.yaml", "long_context.yaml"))
    args["models"] = [trained, chat, embed, long]
    for model in args["models"]:
        model["placement_group_config"] = {"bundles": [{"CPU": 0.15}]}
        model["autoscaling_config"] = {"min_replicas": 1, "max_replicas": 1}
        model["resume_wait_s"] = 180  # An engine that starts on two busy cores takes a minute.
    trained |= {"id": TRAINED, "aliases": []}
    hidden = {"source": "org/none", "accounts": ["nobody"]}
    chat |= {"adapters_from": str(adapters), "adapters": {**{name: {} for name in ADAPTERS}, "hidden": hidden}}
    long |= {
        "autoscaling_config": {"min_replicas": 0, "max_replicas": 1, "target_ongoing_requests": 8, **QUICK},
        "scale_to_zero_wait_s": 180,
    }
    args["moderation"] = {"guard_model": TRAINED, "guard_prompt": "Repeat: {text}"}
    args["ingress"] = {"autoscaling_config": {"min_replicas": 2, "max_replicas": 2}}
    args["tools"] |= {
        "outbound": {"allowed_networks": ["127.0.0.0/8"]},
        "mcp": {},
        "web_search": {"provider": {"name": "searxng", "url": search_url}},
    }
    return config


def models_of(name: str) -> list[dict[str, Any]]:
    """Return the models of one of the shipped configurations."""
    models: list[dict[str, Any]] = read_config(name)["applications"][0]["args"]["models"]
    return models


@pytest.fixture(scope="package")
def web() -> Iterator[Web]:
    """A small web and the SearXNG that knows it, in a thread."""
    web = Web()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        web.port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(web.app(), log_config=None, lifespan="off"))
        running = threading.Thread(target=server.run, args=([listener],))
        running.start()
        yield web
        server.should_exit = True
        running.join()


@pytest.fixture(scope="package")
def service(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service that nearly every test uses, started as by a user who has no token for Ray yet."""
    adapters = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(ADAPTERS):
        make_adapter(adapters / name, "chat", seed)
    config = main_config(f"http://127.0.0.1:{web.port}", adapters)
    with running_service(config, ENVIRONMENT) as service:
        service.stop_signal = signal.SIGTERM
        yield service


@pytest.fixture(scope="package")
def token_ids() -> dict[str, int]:
    """The demo models' vocabulary."""
    from tokenizers import Tokenizer

    from deployments.models.demo.sources import resolve_source

    vocabulary: dict[str, int] = Tokenizer.from_file(f"{resolve_source('demo:chat')}/tokenizer.json").get_vocab()
    return vocabulary
