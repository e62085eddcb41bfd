"""The replica of the code interpreter's deployment: containers, and the listener through which they are reached.

A container lives in one replica. Serve chooses the replica for a new container; the client keeps its address, and later
goes there directly, past Serve. A host that cannot build sandboxes has a replica too, which refuses requests and gives
the reason.
"""

import logging
from typing import Any

import ray
from ray import serve
from ray.serve.deployment import Application

from deployments.channel.connection import socket_path
from deployments.channel.errors import ChannelError, Full, Refused
from deployments.channel.server import Capacity, ChannelServer, Reply
from deployments.channel.tls import TlsFiles
from deployments.replica_process import keep_handlers_open, listen_on_own_address
from deployments.routing.autoscaling import ONGOING
from deployments.tools.code_interpreter.containers import Containers
from deployments.tools.code_interpreter.messages import CODES, ContainerError, file_to_message
from deployments.tools.config import CodeInterpreterConfig
from deployments.tools.sandbox.host import SandboxHost, WarmPool, prepare_host
from deployments.tools.sandbox.root import SandboxUnavailable
from deployments.tools.sandbox.sandbox import Sandbox

logger = logging.getLogger(__name__)

DEPLOYMENT = "tool:code_interpreter"
_CALLS_PER_CONTAINER = 4


class ContainerRunner:
    """Carries out requests about containers; a `Runner` of the side channel."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers

    async def run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        """Carry out one request, or raise a `ChannelError`; a Refused has the code of the reason."""
        try:
            await self._run(header, body, reply)
        except ContainerError as error:
            raise _translated(error) from None

    async def _run(self, header: dict[str, Any], body: bytes, reply: Reply) -> None:
        containers, container_id = self._containers, header.get("container", "")
        match header["operation"]:
            case "status":
                containers.check_able()
                reply.end({})
            case "create":
                await containers.create(container_id, header["idle_s"])
                reply.end({})
            case "run":
                result = await containers.run(container_id, body.decode("utf-8", "replace"))
                for _, image in result.images:
                    reply.write(image)
                outcome = {"status": result.status, "logs": result.logs, "reason": result.reason}
                files = [file_to_message(file) for file in result.files]
                reply.end({**outcome, "images": [name for name, _ in result.images], "files": files})
            case "check":
                containers.check(container_id)
                reply.end({})
            case "list":
                reply.end({"files": [file_to_message(file) for file in await containers.list_files(container_id)]})
            case "read":
                reply.write(await containers.read(container_id, header["file"], header["offset"]))
                reply.end({})
            case "write":
                path, offset, is_last = header["path"], header["offset"], header["is_last"]
                file = await containers.write(container_id, path, offset, body, is_last=is_last)
                reply.end({"file": file_to_message(file) if file is not None else None})
            case "remove":
                await containers.remove(container_id, header["file"])
                reply.end({})
            case "end":
                await containers.end(container_id)
                reply.end({})
            case _:
                raise Refused("There is no such operation.", "operation", "unsupported_value")


def _translated(error: ContainerError) -> ChannelError:
    code = next((code for code, kind in CODES.items() if isinstance(error, kind)), None)
    return Full(error.message) if code is None else Refused(str(error), None, code)


class CodeInterpreterReplica:
    """One replica of the code interpreter."""

    _channel: ChannelServer | None = None
    _containers: Containers | None = None

    async def __init__(self, config: CodeInterpreterConfig, tls: TlsFiles | None = None) -> None:  # type: ignore[misc]  # Serve awaits it.
        """Try whether this host can build sandboxes, then listen."""
        keep_handlers_open()
        listen_on_own_address()
        self._host, problem = await _find_host(config)
        num_warm = config.num_warm if self._host is not None else 0
        pool = WarmPool(self._start, num_warm)
        self._containers = Containers(pool, config.max_containers, problem)
        capacity = Capacity(config.max_containers * _CALLS_PER_CONTAINER, 0)
        self._channel = ChannelServer(ContainerRunner(self._containers), capacity, tls)
        path = socket_path(serve.get_replica_context().replica_id.unique_id)
        self._address = await self._channel.start(ray.util.get_node_ip_address(), path)
        self._containers.open()

    async def _start(self) -> Sandbox:
        if self._host is None:
            raise SandboxUnavailable("no sandbox can be built on this host")
        return await self._host.start()

    async def record_replica_metadata(self) -> dict[str, Any]:
        """Return where this replica listens; Serve calls this once, and passes it to every handle."""
        return {"channel": self._address}

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how many containers this replica holds; called by Serve periodically."""
        return {ONGOING: float(self._containers.num_containers) if self._containers is not None else 0.0}

    async def __del__(self) -> None:
        """End every container; called by Serve on shutdown."""
        if self._channel is not None:
            await self._channel.close()
        if self._containers is not None:
            await self._containers.close()


async def _find_host(config: CodeInterpreterConfig) -> tuple[SandboxHost | None, str | None]:
    """Return this host's sandboxes, or why it cannot build any; the reason is in the log too."""
    try:
        return await prepare_host(config.limits, config.packages, config.preload, has_shell=config.shell), None
    except SandboxUnavailable as error:
        logger.error("The code interpreter is off on this host: %s.", error)
        return None, str(error)


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
        ray_actor_options=config.actor_options,
        max_ongoing_requests=1_000_000,  # No request comes through handles; the channel has the real bound.
        max_surge_percent=100,
        graceful_shutdown_timeout_s=10.0,
        health_check_period_s=5.0,
        health_check_timeout_s=30.0,
    ).bind(config, tls)
