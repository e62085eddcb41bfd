"""The model replica: an engine, and the listener through which ingress replicas reach it.

Requests never pass through Serve. Importing this module loads no engine, as Serve imports it also to deploy the model.
"""

import gc
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import ray
from ray import serve

from deployments.channel.address import socket_path
from deployments.channel.server import Capacity, ChannelServer, Reply, Runner
from deployments.channel.tls import TlsFiles
from deployments.models.config import VLLM, ModelConfig
from deployments.models.contract.errors import EngineError, Overloaded, RequestRejected, to_channel
from deployments.models.contract.payer import payer_of
from deployments.patience import USUAL, Patience
from deployments.replica.children import Guard
from deployments.replica_process import keep_handlers_open, listen_on_own_address
from deployments.routing.autoscaling import ONGOING

_GC_THRESHOLDS = (20_000, 10, 10)
"""With Python's own (700, 10, 10) and hundreds of batch lines, the collector stops every request for 36 to 50 ms."""


class RunningEngine(Protocol):
    """An engine that has started. `runners` has one for each operation that it supports."""

    runners: dict[str, Runner]

    async def check_health(self) -> None:
        """Raise when the engine must be replaced; called every few seconds."""

    async def stop(self) -> None:
        """End the engine and its processes; no request runs any more."""


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
    """Sends each request to the runner of its operation, but no flex request that would have to wait."""

    def __init__(self, runners: dict[str, Runner], model_id: str, has_waiting: Callable[[], bool]) -> None:
        self._runners = runners
        self._model_id = model_id
        self._has_waiting = has_waiting

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request.

        Raises:
            ChannelError: it does not run, or breaks off.
        """
        try:
            await self._run(header, body, reply)
        except EngineError as error:
            raise to_channel(error) from error

    async def _run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        runner = self._runners.get(header["operation"])
        if runner is None:
            message = f"The model `{self._model_id}` does not support this operation."
            raise RequestRejected(message, "model", "unsupported_value")
        if header.get("service_tier") == "flex" and self._has_waiting():
            raise Overloaded("Every place is taken.")
        await runner.run(header, body, reply)


class ModelReplica:
    """One replica of a model deployment."""

    _engine: RunningEngine | None = None
    _channel: ChannelServer | None = None
    _is_sick = False

    async def __init__(  # type: ignore[misc]  # Serve awaits it.
        self, model: ModelConfig, tls: TlsFiles | None = None, patience: Patience = USUAL
    ) -> None:
        """Start the engine, then listen."""
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
        gc.freeze()  # The engine's classes stay for good; the collector need not walk them for every request.
        gc.set_threshold(*_GC_THRESHOLDS)

    def _has_waiting(self) -> bool:
        return self._channel is not None and self._channel.has_waiting

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Return where this replica listens; Serve hands it to every handle (called by Serve, once)."""
        return {"channel": self._address}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how many requests run and wait here (called by Serve, periodically)."""
        return {ONGOING: float(self._channel.num_ongoing) if self._channel is not None else 0.0}

    async def check_health(self) -> None:
        """Raise when this replica must be replaced (called by Serve, periodically)."""
        if self._engine is not None:
            try:
                await self._engine.check_health()
            except Exception:
                self._is_sick = True
                raise
            self._is_sick = False

    async def __del__(self) -> None:
        """Let running requests end, then stop the engine (called by Serve on shutdown).

        What runs in an engine that must be replaced may never end, and goes on elsewhere once the channel is closed.
        """
        if self._channel is not None:
            if not self._is_sick:
                await self._channel.drain(self._drain_s)
            await self._channel.close()
        if self._engine is not None:
            await self._engine.stop()


def _payer_of(header: dict[str, Any]) -> str | None:
    """Return the account of an interactive request."""
    return payer_of(header["cache_salt"])[0] if header["priority"] <= 0 else None
