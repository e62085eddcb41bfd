"""The replica of the code interpreter's deployment: containers, and the listener through which they are reached.

A container lives in one replica. Serve chooses the replica for a new one; the client keeps its address and later goes
there directly, past Serve. A host that cannot build sandboxes has a replica too, which refuses requests and says why.
"""

import logging
from typing import Any

import ray
from ray import serve
from ray.serve.deployment import Application

from deployments.channel.address import socket_path
from deployments.channel.server import Capacity, ChannelServer
from deployments.channel.tls import TlsFiles
from deployments.replica_process import keep_handlers_open, listen_on_own_address
from deployments.routing.autoscaling import ONGOING
from deployments.tools.code_interpreter.holder import Holder
from deployments.tools.code_interpreter.pool import WarmPool
from deployments.tools.code_interpreter.runner import ContainerRunner
from deployments.tools.config import CodeInterpreterConfig
from deployments.tools.sandbox.host import SandboxHost, prepare_host
from deployments.tools.sandbox.root import SandboxUnavailable
from deployments.tools.sandbox.sandbox import Sandbox

logger = logging.getLogger(__name__)

DEPLOYMENT = "tool:code_interpreter"
_CALLS_PER_CONTAINER = 4


class CodeInterpreterReplica:
    """One replica of the code interpreter."""

    _channel: ChannelServer | None = None
    _holder: Holder | None = None

    async def __init__(self, config: CodeInterpreterConfig, tls: TlsFiles | None = None) -> None:  # type: ignore[misc]  # Serve awaits it.
        """Try whether this host can build sandboxes, then listen."""
        keep_handlers_open()
        listen_on_own_address()
        self._host = await _find_host(config)
        num_warm = config.num_warm if self._host is not None else 0
        pool = WarmPool(self._start, num_warm)
        self._holder = Holder(pool, config.max_containers, is_able=self._host is not None)
        capacity = Capacity(config.max_containers * _CALLS_PER_CONTAINER, 0)
        self._channel = ChannelServer(ContainerRunner(self._holder), capacity, tls)
        path = socket_path(serve.get_replica_context().replica_id.unique_id)
        self._address = await self._channel.start(ray.util.get_node_ip_address(), path)
        self._holder.open()

    async def _start(self) -> Sandbox:
        if self._host is None:
            raise SandboxUnavailable("no sandbox can be built on this host")
        return await self._host.start()

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Return where this replica listens; Serve hands it to every handle (called by Serve, once)."""
        return {"channel": self._address}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how many containers this replica holds (called by Serve, periodically)."""
        return {ONGOING: float(self._holder.num_containers) if self._holder is not None else 0.0}

    async def __del__(self) -> None:
        """End every container (called by Serve on shutdown)."""
        if self._channel is not None:
            await self._channel.close()
        if self._holder is not None:
            await self._holder.close()


async def _find_host(config: CodeInterpreterConfig) -> SandboxHost | None:
    """Return what makes sandboxes on this host, None if it cannot; the log says why."""
    try:
        return await prepare_host(config.limits, config.packages, config.preload)
    except SandboxUnavailable as error:
        logger.error("The code interpreter is off on this host: %s.", error)
        return None


def build_code_interpreter(config: CodeInterpreterConfig, tls: TlsFiles | None = None) -> Application:
    """Return the Serve deployment of the code interpreter, not yet deployed."""
    return serve.deployment(
        CodeInterpreterReplica,
        name=DEPLOYMENT,
        autoscaling_config={
            "target_ongoing_requests": max(1, config.max_containers // 2),
            "downscale_delay_s": 60.0 * config.idle_minutes,
            **config.autoscaling_config,
            "policy": {"policy_function": "deployments.routing.autoscaling:desired_replicas"},
        },
        request_router_config={"request_router_class": "deployments.routing.prefix_router:PrefixRouter"},
        ray_actor_options={"num_cpus": 0.1, **config.ray_actor_options},
        max_ongoing_requests=1_000_000,  # Nothing comes over handles; the replica's channel has the real bound.
        max_surge_percent=100,
        graceful_shutdown_timeout_s=10.0,
        health_check_period_s=5.0,
        health_check_timeout_s=30.0,
    ).bind(config, tls)
