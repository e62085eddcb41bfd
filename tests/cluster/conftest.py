"""One running service with vLLM's engines for nearly every test."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from tests.adapters import make_adapter
from tests.clients import async_client, client, http, key
from tests.service import ADAPTERS, EMBED, SMALL, TRAINED, Service, read_config, running_service
from tests.twins.web import Web

__all__ = ["async_client", "client", "http", "key"]

QUICK = {"upscale_delay_s": 0.5, "downscale_delay_s": 5, "metrics_interval_s": 0.5, "look_back_period_s": 2}


def main_config(search_url: str, adapters: Path) -> dict[str, Any]:
    """Return two_chat_models.yaml with tools and two more models, of which one sleeps until it is asked.

    The small model has adapters in a folder.
    """
    config = read_config("two_chat_models.yaml")
    args = config["applications"][0]["args"]
    (long,) = read_config("long_context.yaml")["applications"][0]["args"]["models"]
    trained = read_config("local.yaml")["applications"][0]["args"]["models"][0] | {"id": TRAINED, "aliases": []}
    args["models"] += [long, trained]
    (small,) = [model for model in args["models"] if model["id"] == SMALL]
    small["adapters_from"] = str(adapters)
    small["adapters"] = {**{name: {} for name in ADAPTERS}, "hidden": {"source": "org/none", "accounts": ["nobody"]}}
    for model in args["models"]:
        model["placement_group_config"] = {"bundles": [{"CPU": 0.15}]}
        model["autoscaling_config"] = {"min_replicas": 1, "max_replicas": 1}
        model["resume_wait_s"] = 180  # Two engines that start at once on two cores take minutes.
    trained["autoscaling_config"] = {"min_replicas": 2, "max_replicas": 2}
    long |= {
        "autoscaling_config": {"min_replicas": 0, "max_replicas": 1, "target_ongoing_requests": 8, **QUICK},
        "scale_to_zero_wait_s": 180,
    }
    args["moderation"] = {"guard_model": TRAINED, "guard_prompt": "Repeat: {text}"}
    args["ingress"] = {"autoscaling_config": {"min_replicas": 2, "max_replicas": 2}}
    args["tools"] = {
        "outbound": {"allowed_networks": ["127.0.0.0/8"]},
        "code_interpreter": {
            "num_warm": 1,
            "preload": [],
            "max_containers": 16,
            "max_containers_per_account": 16,
            "autoscaling_config": {"min_replicas": 1, "max_replicas": 1},
        },
        "mcp": {},
        "file_search": {"embedding_model": EMBED},
        "web_search": {"provider": {"name": "searxng", "url": search_url}},
    }
    return config


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
    """The service that nearly every test uses."""
    adapters = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(ADAPTERS):
        make_adapter(adapters / name, "small", seed)
    with running_service(main_config(f"http://127.0.0.1:{web.port}", adapters)) as service:
        yield service


@pytest.fixture(scope="package")
def token_ids() -> dict[str, int]:
    """The demo models' vocabulary."""
    from tokenizers import Tokenizer

    from deployments.models.demo.sources import resolve_source

    vocabulary: dict[str, int] = Tokenizer.from_file(f"{resolve_source('demo:chat')}/tokenizer.json").get_vocab()
    return vocabulary
