"""The configuration of a region: the file in configs/two_regions, with models whose engines are scripted."""

from collections.abc import Mapping
from typing import Any

from tests.serve.configurations import scripted
from tests.service import CHAT, EMBED, read_config
from tests.tools.drills.cluster import PROXY_PORT
from tests.tools.drills.regions.places import Place

STEP_S = 0.05


def region_config(name: str, buckets: Mapping[str, str], **changes: Any) -> dict[str, Any]:
    """Return a region's configuration; `changes` are further fields of the chat model.

    `buckets` has the address of each region's S3 server. That, the engines, their number and the port of Serve's proxy
    are the drill's; all else is the operator's example.
    """
    document = read_config(f"two_regions/{name}.yaml")
    one = {"min_replicas": 1, "max_replicas": 1}
    document["http_options"] = {"host": "0.0.0.0", "port": PROXY_PORT}
    args = document["applications"][0]["args"]
    chat = {"max_concurrent_requests": 128, "engine_kwargs": {"step_s": STEP_S}, "drain_s": 60, **changes}
    args["models"] = [
        scripted(CHAT, autoscaling_config=one, **chat),
        scripted(EMBED, task="embed", autoscaling_config=one, drain_s=60),
    ]
    args["ingress"] = {**args.get("ingress", {}), "num_cpus": 1, "drain_s": 60, "autoscaling_config": one}
    args["batches"] = {**args.get("batches", {}), "max_lines_in_flight": 16}
    store = args["state"]["object_store"]
    for one_store, bucket in ((store, buckets[store["name"]]), (store["other"], buckets[store["other"]["name"]])):
        one_store |= {"endpoint": bucket, "region": "us-east-1"}
    return document


def references_of(place: Place, places: Mapping[str, Place], database_url: str) -> dict[str, str]:
    """Return what a region's configuration refers to."""
    (other,) = (one for one in places.values() if one is not place)
    return {
        "MANTA_DATABASE_URL": database_url,
        "MANTA_PEPPER": "p" * 64,
        "MANTA_MASTER_KEY": "ab" * 32,
        "MANTA_OTHER_REGION_URL": other.url,
        "MANTA_REGION_CA": str(place.authority),
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
    }
