"""The ingress deployment: one process per replica, which answers HTTP.

`app` binds it to its configuration and to handles; `wiring` makes what it runs with. Replicas share nothing but the
gatekeeper, the database, the object store and the models.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Mapping
from typing import Protocol

from ray.serve.handle import DeploymentHandle
from starlette.middleware import Middleware
from starlette.types import ASGIApp

from deployments.limits.actor import start_gatekeeper
from deployments.replica_process import keep_handlers_open, listen_on_own_address
from deployments.state.config import ResolvedState
from serve_app.asgi import create_asgi_app
from serve_app.config import ServiceConfig
from serve_app.front.middleware import FrontMiddleware, LimitsMiddleware
from serve_app.http.connections import bound_messages, end_timers_of_lost_connections
from serve_app.http.middleware import OwnRequestIds
from serve_app.telemetry.log import log_to
from serve_app.wiring import wire


class Coordinator(Protocol):
    """What runs batches, as the ingress reaches it."""

    def start(
        self, handles: Mapping[str, DeploymentHandle], tools: Mapping[str, DeploymentHandle]
    ) -> Callable[[], None]:
        """Start it, unless it runs with this configuration already; `handles` are for the lines of each model.

        Return what makes it look for new batches now, which returns at once.
        """


class Ingress:
    """One ingress replica. Serve asks it for its ASGI application once."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it.
        self,
        config: ServiceConfig,
        state: ResolvedState,
        handles: dict[str, DeploymentHandle],
        tools: dict[str, DeploymentHandle],
        batch_handles: dict[str, DeploymentHandle],
        coordinator: Coordinator,
    ) -> None:
        """Take the configuration, its secrets, and a handle for each model id and for each tool's type.

        `batch_handles` are those of the models that have replicas of their own for batches.
        """
        keep_handlers_open()
        listen_on_own_address()
        end_timers_of_lost_connections()
        await asyncio.to_thread(start_gatekeeper, state)
        bound_messages(config.http.max_body_bytes)
        wake_batches = await asyncio.to_thread(coordinator.start, {**handles, **batch_handles}, tools)
        self._wired = await wire(config, state, handles, tools, wake_batches)

    async def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application (called by Serve, after the constructor)."""
        log_to(sys.stderr)
        self._wired.watch()
        # What start-up made stays for good: without this the collector walks all of it again and again, and falls
        # into requests when it does (280 us a request against 197).
        gc.collect()
        gc.freeze()
        wired = self._wired
        outermost = [
            Middleware(OwnRequestIds),
            Middleware(FrontMiddleware, wired.front_trust, wired.registration.others, wired.status),
        ]
        if wired.lender is not None:
            outermost.append(Middleware(LimitsMiddleware, wired.lender))
        return create_asgi_app(wired.services, outermost)

    async def __del__(self) -> None:
        """Send what is still queued, and hand over background work (called by Serve on shutdown)."""
        if hasattr(self, "_wired"):  # It is not where the constructor failed, whose error counts then.
            await self._wired.closing.aclose()
