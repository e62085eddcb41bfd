"""A gatekeeper without its actor: the class in this process, killed by taking everything from it but its files."""

import asyncio
from dataclasses import replace
from pathlib import Path

from deployments.limits.gatekeeper import GatekeeperProcess, Intervals
from deployments.limits.messages import Identified, SyncReply, SyncRequest
from deployments.state.config import ResolvedState, StateConfig, resolve_state


def resolved(database_url: str, state_dir: Path) -> ResolvedState:
    return replace(resolve_state(StateConfig(state_dir=state_dir), {}), database_url=database_url)


def start(state: ResolvedState) -> GatekeeperProcess:
    return GatekeeperProcess(state, Intervals(key_poll_s=0.05, record_flush_s=0.1))


def kill(gatekeeper: GatekeeperProcess) -> None:
    """End it without letting it save anything."""
    gatekeeper._background.cancel()
    gatekeeper._background.run(gatekeeper._database.close())
    gatekeeper._background.stop()


class DirectTransport:
    """Calls a gatekeeper of this process, off the event loop as an actor would be."""

    def __init__(self, gatekeeper: GatekeeperProcess) -> None:
        self.gatekeeper = gatekeeper

    async def identify(self, digest: bytes) -> Identified:
        return await asyncio.to_thread(self.gatekeeper.identify, digest)

    async def sync(self, request: SyncRequest) -> SyncReply:
        return await asyncio.to_thread(self.gatekeeper.sync, request)

    async def record(self, client_id: str, first: int, rows: list[tuple[object, ...]]) -> tuple[str, int]:
        return await asyncio.to_thread(self.gatekeeper.record, client_id, first, rows)

    async def refresh_keys(self) -> None:
        await asyncio.to_thread(self.gatekeeper.refresh_keys)
