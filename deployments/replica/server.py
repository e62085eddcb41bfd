"""The model replica: an engine, the listener through which ingress replicas reach it, and its Serve deployment.

Requests never pass through Serve. Importing this module loads no engine, as Serve imports it to deploy the model too:
so the deployment's options (name, bundles of resources, scaling) are worked out here. They equal those of
`ray.serve.llm` for the same model, which a test compares; asking it would import vLLM, which takes ten seconds of CPU.
"""

import gc
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import ray
from ray import serve
from ray.serve.deployment import Application

from deployments.channel.connection import socket_path
from deployments.channel.server import Capacity, ChannelServer, Reply, Runner
from deployments.channel.tls import TlsFiles
from deployments.models.config import VLLM, BatchReplicas, ModelConfig, deployment_name
from deployments.models.contract.engine import payer_of
from deployments.models.contract.errors import EngineError, Overloaded, RequestRejected, to_channel
from deployments.models.placement import actor_options, placement_bundles
from deployments.patience import USUAL, Patience
from deployments.replica.processes import Guard
from deployments.replica_process import keep_handlers_open, listen_on_own_address
from deployments.routing.autoscaling import ONGOING

# The time to stop the engine, on top of the time to drain.
STOP_S = 20.0
_GC_THRESHOLDS = (20_000, 10, 10)
"""With Python's default (700, 10, 10) and hundreds of batch lines, the collector stops all requests for 36 to 50 ms."""


class RunningEngine(Protocol):
    """An engine that has started, with a runner for each operation that it supports."""

    runners: dict[str, Runner]

    async def check_health(self) -> None:
        """Raise if the engine must be replaced; called every few seconds."""

    async def stop(self) -> None:
        """End the engine and its processes, after the last request."""


def find_engine(name: str) -> Callable[[ModelConfig], Awaitable[RunningEngine]]:
    """Return the function that starts an engine, as `ModelConfig.engine` names it.

    Raises:
        ImportError: there is no such module.
        AttributeError: the module has no such function.
    """
    if name == VLLM:
        from deployments.replica.engine import start_engine

        return start_engine
    module, _, function = name.partition(":")
    return cast(Callable[[ModelConfig], Awaitable[RunningEngine]], getattr(importlib.import_module(module), function))


class OperationRunner:
    """Passes each request to the runner of its operation; refuses a flex request that would have to wait."""

    def __init__(self, runners: dict[str, Runner], model_id: str, has_waiting: Callable[[], bool]) -> None:
        self._runners = runners
        self._model_id = model_id
        self._has_waiting = has_waiting

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise a `ChannelError`."""
        runner = self._runners.get(header["operation"])
        try:
            if runner is None:
                message = f"The model `{self._model_id}` does not support this operation."
                raise RequestRejected(message, "model", "unsupported_value")
            if header.get("service_tier") == "flex" and self._has_waiting():
                raise Overloaded("Every place is taken.")
            await runner.run(header, body, reply)
        except EngineError as error:
            raise to_channel(error) from error


class ModelReplica:
    """One replica of a model deployment."""

    _engine: RunningEngine | None = None
    _channel: ChannelServer | None = None
    _is_sick = False

    async def __init__(  # type: ignore[misc]  # Serve awaits it.
        self, model: ModelConfig, tls: TlsFiles | None = None, patience: Patience = USUAL
    ) -> None:
        keep_handlers_open()
        listen_on_own_address()
        self._guard = Guard()
        self._drain_s = model.drain_s
        self._engine = await find_engine(model.engine)(model)
        self._guard.add_children()
        capacity = Capacity(model.max_concurrent_requests, model.max_queued_requests, _payer_of)
        runner = OperationRunner(self._engine.runners, model.id, self._has_waiting)
        self._channel = ChannelServer(runner, capacity, tls, patience)
        path = socket_path(serve.get_replica_context().replica_id.unique_id)
        self._address = await self._channel.start(ray.util.get_node_ip_address(), path)
        gc.collect()
        gc.freeze()  # The engine's classes stay for good, so the collector need not walk them.
        gc.set_threshold(*_GC_THRESHOLDS)

    def _has_waiting(self) -> bool:
        return self._channel is not None and self._channel.has_waiting

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Return where this replica listens; Serve calls this once, and passes it to every handle."""
        return {"channel": self._address}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how many requests run and wait here; called by Serve periodically."""
        return {ONGOING: float(self._channel.num_ongoing) if self._channel is not None else 0.0}

    async def check_health(self) -> None:
        """Raise if this replica must be replaced; called by Serve periodically."""
        if self._engine is not None:
            try:
                await self._engine.check_health()
            except Exception:
                self._is_sick = True
                raise
            self._is_sick = False

    async def __del__(self) -> None:
        """Drain, then stop the engine; called by Serve on shutdown.

        Requests of a failed engine may never end: they continue on another replica once the channel is closed.
        """
        if self._channel is not None:
            if not self._is_sick:
                await self._channel.drain(self._drain_s)
            await self._channel.close()
        if self._engine is not None:
            await self._engine.stop()


def _payer_of(header: dict[str, Any]) -> str | None:
    return payer_of(header["cache_salt"])[0] if header["priority"] <= 0 else None


def build_model_deployment(model: ModelConfig, tls: TlsFiles | None = None, patience: Patience = USUAL) -> Application:
    """Return the Serve deployment of one model, not yet deployed."""
    options = deployment_options(model)
    return serve.deployment(ModelReplica, name=deployment_name(model.id), **options).bind(model, tls, patience)


def build_batch_deployment(
    model: ModelConfig, replicas: BatchReplicas, tls: TlsFiles | None = None, patience: Patience = USUAL
) -> Application:
    """Return a second Serve deployment of a model, for the lines of batches only, not yet deployed."""
    scaling = {name: value for name, value in model.autoscaling_config.items() if name != "initial_replicas"}
    own = model.model_copy(update={"autoscaling_config": {**scaling, **replicas.model_dump()}})
    name = deployment_name(model.id, for_batches=True)
    return serve.deployment(ModelReplica, name=name, **deployment_options(own)).bind(own, tls, patience)


def deployment_options(model: ModelConfig) -> dict[str, Any]:
    """Return Serve's options for the deployment of a model, as `serve.deployment` takes them."""
    group = model.placement_group_config or {}
    is_cpu = model.device == "cpu"
    actor = actor_options(model)
    actor["runtime_env"] = {**actor.get("runtime_env", {}), "env_vars": dict(model.env)}
    return {
        "autoscaling_config": {
            "target_ongoing_requests": max(1, model.max_concurrent_requests // 2),
            **model.autoscaling_config,
            "policy": {"policy_function": "deployments.routing.autoscaling:desired_replicas"},
        },
        "request_router_config": {"request_router_class": "deployments.routing.prefix_router:PrefixRouter"},
        "ray_actor_options": actor,
        "placement_group_bundles": placement_bundles(model),
        "placement_group_strategy": group.get("strategy", "PACK"),
        "max_surge_percent": model.max_surge_percent if model.max_surge_percent is not None else 100 * is_cpu,
        "max_ongoing_requests": 1_000_000,  # No request comes through handles; the channel has the real bound.
        "graceful_shutdown_timeout_s": model.drain_s + STOP_S,
        "health_check_period_s": 5.0,
        "health_check_timeout_s": 30.0,
    }
