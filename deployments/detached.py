"""Actors of which the cluster has one: found by name, outliving whoever starts them, restarted by Ray when killed.

Such an actor has `fingerprint`, which stands for the configuration it runs with, and `stop`.
"""

import logging
import time
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from deployments.config import ConfigError

logger = logging.getLogger(__name__)

NAMESPACE = "manta"
_START_ATTEMPTS = 5
_START_TIMEOUT_S = 60
_HEAD = {"node:__internal_head__": 0.001}
"""What the head alone has. An actor that asks for nothing is put anywhere, also where strangers' code runs."""


def start_detached(actor_class: type[Any], argument: Any, wanted: str, name: str, stop_s: float, **options: Any) -> Any:
    """Return the handle of the actor called `name`, started if there is none or if its fingerprint is not `wanted`.

    Several may start it at once. One that runs with another configuration has `stop_s` seconds to stop.

    Raises:
        ConfigError: something else keeps replacing it.
    """
    options |= {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    options |= {"max_restarts": -1, "max_task_retries": 0, "num_cpus": 0, "resources": _HEAD}
    actor = ray.remote(actor_class).options(**options)
    for _ in range(_START_ATTEMPTS):
        handle = actor.remote(argument)
        try:
            running = ray.get(handle.fingerprint.remote(), timeout=_START_TIMEOUT_S)
        except RayActorError:  # It ended between being found and being asked: another starter replaces it.
            time.sleep(0.2)
            continue
        if running == wanted:
            return handle
        logger.info("The actor %s runs with another configuration and is started anew.", name)
        stop_detached(name, stop_s)
    raise ConfigError(f"The actor {name} did not start with this configuration; is another service starting beside it?")


def stop_detached(name: str, stop_s: float) -> None:
    """Give the actor `stop_s` seconds to stop by itself, then end it for good; nothing happens where there is none."""
    try:
        handle = ray.get_actor(name, NAMESPACE)
    except ValueError:
        return
    try:
        ray.get(handle.stop.remote(), timeout=stop_s)
    except RayError as error:
        logger.warning("The actor %s did not stop by itself: %s", name, type(error).__name__)
    ray.kill(handle, no_restart=True)
