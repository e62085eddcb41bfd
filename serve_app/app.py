"""Builds the Serve application from the configuration. `serve run` and `serve deploy` call `build`.

The only module that may import everything.
"""

# No `from __future__ import annotations`: Serve converts `args:` into the annotated type only if it is a class.

from dataclasses import replace

import ray
from ray import serve
from ray.serve.deployment import Application

from deployments.operations import Operation
from deployments.patience import USUAL
from deployments.replica.server import build_batch_deployment, build_model_deployment
from deployments.state.config import check_database, resolve_state
from deployments.tools.code_interpreter.replica import build_code_interpreter
from serve_app.config import ServiceConfig
from serve_app.coordinator import ClusterCoordinator
from serve_app.ingress import Ingress


def build(args: ServiceConfig) -> Application:
    """Return the whole service, not yet deployed.

    Raises:
        pydantic.ValidationError: the configuration is wrong; the message names the field.
        ConfigError: a reference in `state` cannot be read, or the nodes of the cluster cannot share the database.
    """
    config = ServiceConfig.model_validate(args)
    if ray.is_initialized():  # It is not when a configuration is only checked.
        check_database(config.state, sum(1 for node in ray.nodes() if node["Alive"]))
    ingress = serve.deployment(
        serve.ingress()(Ingress),
        name="ingress",
        max_ongoing_requests=config.ingress.max_ongoing_requests,
        max_surge_percent=100,  # New replicas start before old ones go.
        autoscaling_config=config.ingress.autoscaling_config,
        ray_actor_options={
            "num_cpus": config.ingress.num_cpus,
            # By default the C library keeps a heap for each of many threads, and they never stop growing.
            "runtime_env": {"env_vars": {"MALLOC_ARENA_MAX": "1"}},
        },
        graceful_shutdown_timeout_s=config.ingress.drain_s,
        logging_config={"enable_access_log": False},  # The request log has more, and no content.
    )
    tls = None if config.tls is None else config.tls.files()
    patience = USUAL.times(config.patience)
    handles = {model.id: build_model_deployment(model, tls, patience) for model in config.models}
    batch_handles = {
        model.id: build_batch_deployment(model, model.batch_replicas, tls, patience)
        for model in config.models
        if model.batch_replicas is not None
    }
    tools = {}
    if config.tools.code_interpreter is not None:
        tools[Operation.CODE_INTERPRETER] = build_code_interpreter(config.tools.code_interpreter, tls)
    state = replace(resolve_state(config.state, region=config.region), tls=tls, patience=patience)
    return ingress.bind(config, state, handles, tools, batch_handles, ClusterCoordinator(config, state))
