"""The gatekeeper as a detached Ray actor, and the transport over which ingress replicas reach it.

Every ingress replica starts it, but only one runs in a cluster, under its name.
"""

import asyncio
import time
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from typing_extensions import override

from deployments.channel.client import Address
from deployments.detached import NAMESPACE, leave_when_drained, start_detached, stop_detached
from deployments.limits.gatekeeper import GatekeeperProcess, fingerprint
from deployments.limits.messages import Identified, SyncReply, SyncRequest, Transport, TransportDown
from deployments.limits.sync_channel import SyncClient, SyncListener
from deployments.patience import USUAL, Patience
from deployments.state.config import ResolvedState

ACTOR_NAME = "manta-gatekeeper"


class GatekeeperActor(GatekeeperProcess):
    """The gatekeeper as an actor: syncs come over the side channel, all other calls through Ray."""

    def __init__(self, state: ResolvedState) -> None:
        super().__init__(state)
        name = f"gatekeeper-{ray.get_runtime_context().get_actor_id()}"
        self._listener = SyncListener(self.sync, ray.util.get_node_ip_address(), name, state.tls, state.patience)
        leave_when_drained(self._leave)

    def channel(self) -> Address:
        """Return the address at which the gatekeeper listens for syncs."""
        return self._listener.address

    def stop(self) -> None:
        """Stop listening and save everything."""
        self._listener.close()
        super().stop()

    def _leave(self) -> None:
        self.grant_no_more()
        time.sleep(self._patience.notice_s)  # Every active client syncs meanwhile, and learns of the stop.
        self.stop()


def start_gatekeeper(state: ResolvedState, name: str = ACTOR_NAME) -> Any:
    """Return the handle of the cluster's gatekeeper; start one unless it runs with this configuration already.

    It outlives the process that starts it, and Ray restarts it when it dies. Safe to call concurrently.

    Raises:
        ConfigError: a process with another configuration keeps replacing it.
    """
    return start_detached(GatekeeperActor, state, fingerprint(state), name, state.patience.stop_s, max_concurrency=1)


def stop_gatekeeper(name: str = ACTOR_NAME) -> None:
    """Let the gatekeeper save everything, then end it for good; do nothing if there is none."""
    stop_detached(name, USUAL.stop_s)


class RayTransport(Transport):
    """Finds the actor by its name, and syncs with it over the side channel."""

    def __init__(self, name: str = ACTOR_NAME, patience: Patience = USUAL) -> None:
        self._name = name
        self._patience = patience
        self._handle: Any = None
        self._finding: set[asyncio.Task[Address]] = set()
        self._sync = SyncClient(self._find_channel, patience)

    @override
    async def identify(self, digest: bytes) -> Identified:
        identified: Identified = await self._call("identify", digest, timeout_s=self._patience.identify_s)
        return identified

    @override
    async def sync(self, request: SyncRequest) -> SyncReply:
        return await self._sync.sync(request, self._patience.sync_s)

    @override
    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        marks: tuple[str, int] = await self._call("record", client_id, first, rows)
        return marks

    @override
    async def refresh_keys(self) -> None:
        await self._call("refresh_keys")

    async def lend(self, request: bytes) -> bytes:
        """Return the reply to another region's request for quota loans; see `GatekeeperProcess.lend`.

        Raises:
            TransportDown: the gatekeeper does not answer, or cannot read the request.
        """
        reply: bytes = await self._call("lend", request)
        return reply

    async def shares(self) -> dict[str, Any] | None:
        """Return the quota loans; see `GatekeeperProcess.shares`."""
        shares: dict[str, Any] | None = await self._call("shares")
        return shares

    def close(self) -> None:
        """Close the channel."""
        self._sync.close()
        for call in self._finding:
            call.cancel()

    async def _find_channel(self) -> Address:
        """Return the gatekeeper's address, by a new call or by an earlier one that is still pending.

        A call that is pending when the gatekeeper dies fails only one to two seconds later. A new call reaches the
        gatekeeper as soon as it is back. If the gatekeeper is slow, an earlier call is answered first.
        """
        call = asyncio.create_task(self._call("channel"))
        call.add_done_callback(_forget_error)
        self._finding.add(call)
        done, self._finding = await asyncio.wait(
            self._finding, timeout=self._patience.find_s, return_when=asyncio.FIRST_COMPLETED
        )
        for call in done:
            if call.exception() is None:
                return call.result()
        raise TransportDown("The gatekeeper is not found.")

    async def _call(self, method: str, *args: object, timeout_s: float | None = None) -> Any:
        try:
            if self._handle is None:
                self._handle = await asyncio.to_thread(ray.get_actor, self._name, NAMESPACE)
            return await asyncio.wait_for(
                getattr(self._handle, method).remote(*args), timeout_s or self._patience.call_s
            )
        except TransportDown:
            raise
        except RayTaskError as error:
            if isinstance(error.cause, TypeError):
                raise error.cause from None
            raise TransportDown(f"The gatekeeper does not answer: {type(error).__name__}.") from None
        except (RayActorError, ValueError) as error:
            # It restarts under the same handle, or was replaced by another of this name.
            self._handle = None
            raise TransportDown(f"The gatekeeper is away: {type(error).__name__}.") from None
        except (RayError, TimeoutError) as error:
            raise TransportDown(f"The gatekeeper does not answer: {type(error).__name__}.") from None


def _forget_error(call: asyncio.Task[Address]) -> None:
    """Mark the error of a call as read: asyncio logs the error of a task that is not awaited."""
    if not call.cancelled():
        call.exception()
