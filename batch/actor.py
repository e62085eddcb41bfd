"""The coordinator as a detached Ray actor: found by its name, restarted by Ray when it dies.

Every ingress replica starts it. Its process also runs the housekeeping and delivers webhooks.
"""

import asyncio
import logging
from typing import Any

import ray
from ray.exceptions import RayError

from batch.coordinator import Coordinator
from batch.ray_fleet import RayFleet
from batch.run import RunContext
from batch.setup import BatchSetup, log_errors
from deployments.config import ConfigError
from deployments.detached import NAMESPACE, leave_when_drained, start_detached
from deployments.state.housekeeping import Housekeeping, create_chores
from deployments.state.regions.register import HOUSEKEEPING, Leadership
from deployments.state.webhooks.queue import DeliveryQueue
from deployments.waiting import BackgroundLoop, end_all, keep_on
from deployments.webhooks import Deliverer, WebhookSender
from serve_app.telemetry.log import log_bug

logger = logging.getLogger(__name__)

ACTOR_NAME = "manta-batches"
_RETRY_S = 2.0
_STOP_S = 10.0


class BatchCoordinator:
    """Runs a coordinator from its construction on, and starts another when it fails."""

    def __init__(self, setup: BatchSetup) -> None:
        log_errors()
        self._setup = setup
        self._fingerprint = setup.fingerprint()
        self._coordinator: Coordinator | None = None
        self._loop = BackgroundLoop("batches")
        self._running = self._loop.start(self._run_for_ever())
        leave_when_drained(self.stop)

    def fingerprint(self) -> str:
        """Return the digest of this coordinator's configuration."""
        return self._fingerprint

    def poke(self) -> None:
        """Look for new batches now."""
        coordinator = self._coordinator
        if coordinator is not None:
            self._loop.start(_poke(coordinator))

    def stop(self) -> None:
        """Release all claims, so that another coordinator can go on at once."""
        self._loop.cancel()

    async def _run_for_ever(self) -> None:
        while True:
            try:
                await self._run()
            except ConfigError as error:
                logger.warning("Batches cannot run: %s", error)
            except (OSError, RayError) as error:
                logger.warning("Batches cannot run: %s", type(error).__name__)
            except Exception as error:  # A bug with one batch must not end all others.
                log_bug(ACTOR_NAME, error)
            await asyncio.sleep(_RETRY_S)

    async def _run(self) -> None:
        stores = await self._setup.open_stores()
        fleet = RayFleet(self._setup)
        setup, state = self._setup, self._setup.state.config
        tracer = setup.create_tracer()
        self._coordinator = Coordinator(RunContext(stores, fleet, setup.config, state.files, state.tiers, tracer))
        chores = create_chores(stores.database, stores.files, stores.work, state)
        leads = None
        if setup.state.region is not None:
            leads = Leadership(stores.database, HOUSEKEEPING, setup.state.region.name).hold
        queue = DeliveryQueue(stores.database, stores.files.vault)
        works = (
            _warm_up(fleet),
            keep_on("Housekeeping", Housekeeping(chores, log_bug, leads).run),
            keep_on("Webhooks", lambda: Deliverer(queue, WebhookSender(setup.tools.outbound.rules)).run()),
        )
        beside = [asyncio.create_task(work) for work in works]
        try:
            await self._coordinator.run()
        finally:
            self._coordinator = None
            await end_all(beside)
            await fleet.close()
            await stores.close()
            if tracer is not None:
                await asyncio.to_thread(tracer.close)


async def _poke(coordinator: Coordinator) -> None:
    coordinator.poke()


async def _warm_up(fleet: RayFleet) -> None:
    try:
        await fleet.warm_up()
    except Exception as error:
        logger.warning("The permanent batch worker does not start yet: %s", type(error).__name__)


def start_coordinator(setup: BatchSetup, name: str = ACTOR_NAME) -> None:
    """Start the coordinator of the cluster, unless it runs with this configuration already. Safe to call concurrently.

    Raises:
        ConfigError: another service with another configuration keeps replacing it.
    """
    start_detached(BatchCoordinator, setup, setup.fingerprint(), name, _STOP_S)


class CoordinatorWaker:
    """Wakes the coordinator when there is a new batch; a lost call only delays it until its next poll."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._waking: asyncio.Task[None] | None = None

    def ring(self) -> None:
        """Wake the coordinator, without waiting."""
        if self._waking is None or self._waking.done():
            self._waking = asyncio.get_running_loop().create_task(self._wake())

    async def _wake(self) -> None:
        try:
            if self._handle is None:
                self._handle = await asyncio.to_thread(ray.get_actor, ACTOR_NAME, NAMESPACE)
            await self._handle.poke.remote()
        except (RayError, ValueError):
            self._handle = None
